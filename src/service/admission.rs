//! Admission: two runs per service, one per workspace, refused at once and never queued (CMD.3).

use crate::domain::ids::WorkspaceId;
use crate::domain::refusal::{Code, Refusal};
use crate::ledger::Place;

/// Most runs of one service that hold places.
pub const PER_SERVICE: usize = 2;

/// Decides whether one more run may start in `workspace` while `held` hold their places.
///
/// # Errors
/// `busy`, naming the runs that hold the places.
pub fn admit(held: &[Place], workspace: &WorkspaceId) -> Result<(), Refusal> {
    if let Some(place) = held.iter().find(|place| place.workspace_id == *workspace) {
        return Err(Refusal::new(
            Code::Busy,
            format!("the run {} holds the one place of this workspace", place.run_id),
            "wait for its end or cancel it, then start again",
        ));
    }
    if held.len() >= PER_SERVICE {
        let ids: Vec<_> = held.iter().map(|place| place.run_id.as_str()).collect();
        return Err(Refusal::new(
            Code::Busy,
            format!("the runs {} hold all {PER_SERVICE} places of this service", ids.join(", ")),
            "wait for the end of one or cancel it, then start again",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::RunId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The model: a map from workspace to its run, never larger than two.
        #[test]
        fn cmd3_admission_agrees_with_a_map_of_two(steps in prop::collection::vec((0usize..4, any::<bool>()), 0..60)) {
            let workspaces: Vec<_> = (0..4).map(|_| WorkspaceId::fresh()).collect();
            let mut model = BTreeMap::new();
            let mut held: Vec<Place> = Vec::new();
            for (w, starts) in steps {
                let workspace = &workspaces[w];
                if starts {
                    let want = model.len() < 2 && !model.contains_key(&w);
                    let got = admit(&held, workspace);
                    prop_assert_eq!(got.is_ok(), want);
                    match got {
                        Ok(()) => {
                            let run_id = RunId::fresh();
                            model.insert(w, run_id.clone());
                            held.push(Place { run_id, workspace_id: workspace.clone() });
                        }
                        Err(refusal) => {
                            prop_assert_eq!(refusal.code, Code::Busy);
                            let own = model.get(&w);
                            for run in model.values().filter(|run| own.is_none_or(|own| own == *run)) {
                                prop_assert!(refusal.message.contains(run.as_str()));
                            }
                        }
                    }
                } else if model.remove(&w).is_some() {
                    held.retain(|place| place.workspace_id != *workspace);
                }
            }
        }
    }
}
