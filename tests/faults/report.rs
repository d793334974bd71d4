//! The table of what was swept.

use crate::checker::Findings;
use std::collections::BTreeMap;

/// What became of one cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Its fault struck so often; the run ended so.
    Swept { strikes: usize, end: String },
    /// It does not apply, for this reason.
    None(&'static str),
}

/// All cells so far: (row, point) and mode.
#[derive(Default)]
pub struct Report {
    cells: BTreeMap<(String, String), BTreeMap<&'static str, Cell>>,
    findings: Findings,
}

impl Report {
    pub fn enter(&mut self, row: &str, point: &str, mode: &'static str, cell: Cell) {
        self.cells.entry((row.to_owned(), point.to_owned())).or_default().insert(mode, cell);
    }

    /// Adds what the checker found in a cell.
    pub fn found(&mut self, findings: &Findings) {
        let all = &mut self.findings;
        all.duplicates.extend(findings.duplicates.iter().cloned());
        all.invented.extend(findings.invented.iter().cloned());
        all.lost.extend(findings.lost.iter().cloned());
        all.leftovers.extend(findings.leftovers.iter().cloned());
    }

    fn swept(&self) -> (usize, usize, usize) {
        let all = self.cells.values().flat_map(BTreeMap::values);
        all.fold((0, 0, 0), |(cells, strikes, none), cell| match cell {
            Cell::Swept { strikes: n, .. } => (cells + 1, strikes + n, none),
            Cell::None(_) => (cells, strikes, none + 1),
        })
    }

    pub fn summary(&self) -> String {
        let (cells, strikes, none) = self.swept();
        let f = &self.findings;
        format!(
            "cells swept {cells}, faults struck {strikes}, cells that do not apply {none}; duplicates {}, \
             invented statuses {}, lost acknowledgements {}, leftovers {}",
            f.duplicates.len(),
            f.invented.len(),
            f.lost.len(),
            f.leftovers.len()
        )
    }

    pub fn table(&self) -> String {
        let mut text =
            format!("# Crash matrix\n\n{}\n\n| row | boundary | fault | struck | end |\n", self.summary());
        text.push_str("| --- | --- | --- | --- | --- |\n");
        for ((row, point), modes) in &self.cells {
            for (mode, cell) in modes {
                let (struck, end) = match cell {
                    Cell::Swept { strikes, end } => (strikes.to_string(), end.as_str()),
                    Cell::None(reason) => ("–".to_owned(), *reason),
                };
                text.push_str(&format!("| {row} | {point} | {mode} | {struck} | {end} |\n"));
            }
        }
        text
    }
}
