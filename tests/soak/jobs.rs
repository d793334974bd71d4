//! The commands of a soak, and what each of them may end as.

use crate::dice::Dice;
use serde_json::Value;

/// Bytes of output that are kept of a run.
const KEPT: u64 = 65_536;
/// Bytes that a flood writes after its key.
const FLOOD: u64 = 4_000_000;
/// Most commands that run into their deadline: each takes 30 seconds.
const MOST_DEADLINES: usize = 20;

/// What a command is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Exits with 0.
    Plain,
    /// Exits with a code of its own.
    Fail,
    /// Sleeps until it is cancelled.
    Cancel,
    /// Writes far more than is kept.
    Flood,
    /// Allocates without end as the main process.
    Oom,
    /// Sleeps past its deadline.
    Deadline,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fail => "fail",
            Self::Cancel => "cancel",
            Self::Flood => "flood",
            Self::Oom => "oom",
            Self::Deadline => "deadline",
        }
    }

    /// The kinds by their share of all commands but deadlines, in hundredths.
    fn of_share(hundredth: usize) -> Self {
        match hundredth {
            0..32 => Self::Plain,
            32..58 => Self::Fail,
            58..74 => Self::Cancel,
            74..90 => Self::Flood,
            _ => Self::Oom,
        }
    }
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    pub number: usize,
    pub kind: Kind,
}

/// Whether a run ended as its kind does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Meant,
    /// Its intent was committed and nothing was ever launched: the service was killed in between.
    NeverLaunched,
    /// It did not, or its output is not its own.
    Wrong,
}

/// `count` commands in a random order, deadlines spread over the first part so that none is left alone
/// at the end.
pub fn plan(count: usize, dice: &mut Dice) -> Vec<Job> {
    let deadlines = (count / 100).min(MOST_DEADLINES);
    let others = count - deadlines;
    let mut kinds: Vec<Kind> = (0..others).map(|n| Kind::of_share(n * 100 / others)).collect();
    dice.shuffle(&mut kinds);
    for n in 0..deadlines {
        let at = (2 * n + 1) * kinds.len() * 7 / (deadlines * 20);
        kinds.insert(at, Kind::Deadline);
    }
    kinds.into_iter().enumerate().map(|(number, kind)| Job { number, kind }).collect()
}

impl Job {
    /// The step key; also the first line of the output.
    pub fn key(&self) -> String {
        format!("{}-{:05}", self.kind.name(), self.number)
    }

    /// Exit code of a failure: below those of shells and signals.
    fn code(&self) -> u64 {
        1 + self.number as u64 % 100
    }

    pub fn command(&self) -> String {
        let key = self.key();
        match self.kind {
            Kind::Plain => format!("echo {key}"),
            Kind::Fail => format!("echo {key}; exit {}", self.code()),
            Kind::Cancel | Kind::Deadline => format!("echo {key}; sleep 100"),
            Kind::Flood => format!("echo {key}; head -c {FLOOD} /dev/zero | tr '\\0' x"),
            Kind::Oom if self.number.is_multiple_of(2) => {
                format!("echo {key}; exec node -e 'const a=[];for(;;)a.push(Buffer.alloc(1<<20,1))'")
            }
            Kind::Oom => format!("echo {key}; x={key}; while :; do x=$x$x; done"),
        }
    }

    /// Judges a terminal run as `sal … --json` shows it, with the bytes of its output file.
    pub fn judge(&self, run: &Value, output: &[u8]) -> Verdict {
        let outcome = &run["outcome"];
        let cause = outcome["cause"].as_str().unwrap_or("none");
        let exit = outcome["exit_code"].as_u64();
        let (stored, total) = (number(&run["output"]["stored_bytes"]), number(&run["output"]["total_bytes"]));
        if run["cleanup"] != "confirmed" || stored != output.len() as u64 {
            return Verdict::Wrong;
        }
        if run["state"] == "interrupted" {
            let unsent = outcome["detail"].as_str().is_some_and(|d| d.contains("the command never ran"));
            let silent = exit.is_none() && total == 0;
            return if cause == "interrupted" && unsent && silent {
                Verdict::NeverLaunched
            } else {
                Verdict::Wrong
            };
        }
        let line = format!("{}\n", self.key()).into_bytes();
        let whole = output == line && total == stored;
        let meant = match self.kind {
            Kind::Plain => cause == "exited" && exit == Some(0) && whole,
            Kind::Fail => cause == "exited" && exit == Some(self.code()) && whole,
            // It may have come before the launch, or before the first line.
            Kind::Cancel => cause == "cancelled" && (whole || total == 0),
            Kind::Deadline => cause == "deadline" && exit == Some(137) && whole,
            Kind::Flood => {
                let bounded = stored == KEPT && total == FLOOD + line.len() as u64;
                let ours = output.starts_with(&line) && output[line.len()..].iter().all(|b| *b == b'x');
                cause == "exited" && exit == Some(0) && bounded && ours && run["output"]["truncated"] == true
            }
            // 137 alone is no proof: a kill must have been counted.
            Kind::Oom => {
                let killed = number(&outcome["oom_kills"]) > 0 && (cause == "oom" || cause == "exited");
                // At the limit the kernel may go on reclaiming the program's own pages instead, so that
                // the command crawls into its deadline; the peak says so.
                let limit = salaam::domain::profile::Profile::fixed().memory_bytes;
                let starved = cause == "deadline" && number(&run["headroom"]["memory_peak"]) == limit;
                (killed || starved) && exit == Some(137) && output.starts_with(&line)
            }
        };
        if run["state"] == "finished" && meant { Verdict::Meant } else { Verdict::Wrong }
    }
}

/// How a run's end is named in the table.
pub fn label(run: &Value) -> String {
    let cause = run["outcome"]["cause"].as_str().unwrap_or("none");
    if cause == "cancelled" && run["outcome"]["exit_code"].is_null() {
        format!("{cause}, before its launch")
    } else {
        cause.to_owned()
    }
}

/// True for the two states that never change again.
pub fn terminal(run: &Value) -> bool {
    run["state"] == "finished" || run["state"] == "interrupted"
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(u64::MAX)
}
