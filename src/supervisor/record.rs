//! The record file: one JSON line a step, written before the next step is taken, and synced where
//! its loss would change the truth.

use crate::domain::job::RECORDS_FILE;
use crate::domain::record::Record;
use crate::fault::{self, Side};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// Appends records and tells them to whoever holds the other end of standard output.
pub struct Recorder {
    file: File,
    /// The run directory, until the file's name in it is synced.
    dir: Option<File>,
    /// Name of the run directory: the run.
    run: String,
}

/// The record's name among the points of `fault`.
fn boundary(record: &Record) -> &'static str {
    match record {
        Record::Supervising { .. } => "record.supervising",
        Record::Launching { .. } => "record.launching",
        Record::StartFailed { .. } => "record.start_failed",
        Record::Exited { .. } => "record.exited",
        Record::Removed { .. } => "record.removed",
    }
}

impl Recorder {
    /// Creates the record file; it must not exist, because a job is run once.
    ///
    /// # Errors
    /// The system's error; `AlreadyExists` when the job was taken before.
    pub fn create(run_dir: &Path) -> std::io::Result<Self> {
        let path = run_dir.join(RECORDS_FILE);
        let file = File::options().append(true).create_new(true).open(path)?;
        let run = run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { file, dir: Some(File::open(run_dir)?), run })
    }

    /// Appends a record, syncs it where its loss would change the truth, then tells it.
    ///
    /// # Errors
    /// The system's error; what the record says must then not be done.
    pub fn append(&mut self, record: &Record) -> std::io::Result<()> {
        let boundary = boundary(record);
        fault::reach(boundary, Side::Before, &self.run)?;
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        // A power cut takes the supervisor and the container with it: after one, neither that someone
        // supervised nor that removal was confirmed says anything that a sweep does not find out.
        if !matches!(record, Record::Supervising { .. } | Record::Removed { .. }) {
            fault::reach("record.sync", Side::Before, &self.run)?;
            self.file.sync_data()?;
            if let Some(dir) = self.dir.take() {
                dir.sync_all()?;
            }
        }
        fault::reach(boundary, Side::After, &self.run)?;
        // The service may be gone; its successor reads the file.
        let _ = nix::unistd::write(std::io::stdout(), &line);
        Ok(())
    }
}
