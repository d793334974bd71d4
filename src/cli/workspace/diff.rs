//! `sal workspace diff`: the changes since the import (WS.7).
//!
//! Into a pipe or file goes the patch, byte for byte; a terminal gets a rendering of it that cannot
//! steer it. There is no pager: a pager would have to be trusted with the same bytes.

use super::{diff_stat, diff_view};
use crate::api::client::{Client, Patch};
use crate::api::wire::WorkspaceDiff;
use crate::cli::args::OneSession;
use crate::cli::colour::{self, When};
use crate::cli::connect::with_client;
use crate::cli::failure::{Done, Failure};
use crate::cli::output::Output;
use crate::cli::progress::shown;
use crate::domain::diff::Content;
use crate::domain::refusal::Refusal;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

const BUSY: &str = "comparing";
/// Exit code of a diff that leaves out what is lost.
const INCOMPLETE: u8 = 1;

/// Arguments of `workspace diff`.
#[derive(Debug, clap::Args)]
pub(crate) struct Diff {
    #[command(flatten)]
    at: OneSession,
    /// Show the files and how many lines changed instead of the patch
    #[arg(long)]
    stat: bool,
    /// Compare the import with this revision instead of the current one
    #[arg(long, value_name = "N")]
    revision: Option<u32>,
    /// When to use colours; `always` makes an escaped rendering even into a pipe
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    color: When,
}

impl Diff {
    /// Prints the changes.
    pub(crate) fn run(self, out: Output) -> Done {
        let state = self.at.state.path()?;
        let rendered = std::io::stdout().is_terminal() || self.color == When::Always;
        with_client(&state, async |mut client| {
            let lost = if out.is_json() || self.stat {
                let found = shown(BUSY, client.diff_summary(&self.at.session, self.revision)).await?;
                out.either(&found, diff_stat::text)?;
                lost(&found)
            } else if rendered {
                self.render(&mut client, out).await?
            } else {
                self.write(&mut client, out).await?
            };
            Ok(self.verdict(lost, out))
        })
    }

    /// Tells of changes that are left out because their published bytes are lost. The rest is good, but a
    /// caller who applies it must not take it for the whole.
    fn verdict(&self, lost: u64, out: Output) -> ExitCode {
        if lost == 0 {
            return ExitCode::SUCCESS;
        }
        out.note(&format!(
            "changes that are left out because published bytes are no longer there: {lost}; \
             sal workspace diff {} --stat names them; they come back when the edits in the revision's \
             directory are undone, or when the project holds those files again",
            self.at.session
        ));
        ExitCode::from(INCOMPLETE)
    }

    /// Writes the patch as it is; answers how many changes are lost.
    async fn write(&self, client: &mut Client, out: Output) -> Result<u64, Failure> {
        let session = &self.at.session;
        let mut patch = shown(BUSY, client.diff(session, self.revision)).await?;
        let mut any = false;
        while let Some(bytes) = patch.bytes.next().await? {
            any = true;
            out.raw(&bytes)?;
        }
        let binary = patch.left_out.saturating_sub(patch.lost);
        if binary > 0 {
            out.note(&format!(
                "binary changes that are not in the patch: {}; sal workspace diff {session} --stat names them, \
                 sal workspace inspect {session} says where the files lie",
                binary
            ));
        }
        if any && let Some(hint) = below_a_repository(Path::new(&client.session(session).await?.cwd)) {
            out.note(&hint);
        }
        Ok(patch.lost)
    }

    /// Shows the patch file by file, escaped; answers how many changes are lost.
    async fn render(&self, client: &mut Client, out: Output) -> Result<u64, Failure> {
        let found = shown(BUSY, client.diff_summary(&self.at.session, self.revision)).await?;
        // Published revisions stay, so this is the patch that was summed up.
        let mut patch = client.diff(&self.at.session, Some(found.to_revision)).await?;
        let colours = colour::wanted(self.color);
        let mut held = Vec::new();
        for file in &found.files {
            let section = take(&mut patch, &mut held, file.patch_bytes).await?;
            out.raw(diff_view::section(file, &String::from_utf8_lossy(&section), colours).as_bytes())?;
        }
        Ok(lost(&found))
    }
}

/// How many changes are left out because published bytes are lost.
fn lost(found: &WorkspaceDiff) -> u64 {
    found.files.iter().filter(|file| file.content == Content::Lost && !file.in_patch).count() as u64
}

/// Takes the next `length` bytes of the patch; fewer if it ends before.
async fn take(patch: &mut Patch, held: &mut Vec<u8>, length: u64) -> Result<Vec<u8>, Refusal> {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    while held.len() < length {
        let Some(bytes) = patch.bytes.next().await? else { break };
        held.extend_from_slice(&bytes);
    }
    let rest = held.split_off(length.min(held.len()));
    Ok(std::mem::replace(held, rest))
}

/// What to say when the project is a directory inside a repository: there `git apply` passes over every
/// path that it does not find below its own directory, and says nothing.
fn below_a_repository(project: &Path) -> Option<String> {
    let top = project.ancestors().find(|directory| directory.join(".git").symlink_metadata().is_ok())?;
    let below = project.strip_prefix(top).ok().filter(|below| !below.as_os_str().is_empty())?;
    Some(format!(
        "the project is a directory of the repository {}: give git apply --directory={}, or it applies nothing",
        top.display(),
        below.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws7_a_project_inside_a_repository_is_told_to_git() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("repo/packages/one");
        std::fs::create_dir_all(&project).unwrap();
        assert_eq!(below_a_repository(&project), None);
        std::fs::write(dir.path().join("repo/.git"), "gitdir: elsewhere").unwrap();
        let said = below_a_repository(&project).unwrap();
        assert!(said.contains("--directory=packages/one,"), "{said}");
        assert_eq!(below_a_repository(&dir.path().join("repo")), None);
    }
}
