//! Compiles `seccomp/profile.json` (OCI form) into BPF with seccompiler: pure.
//!
//! seccompiler takes one match action a filter, so the profile becomes two: an allow-list whose
//! mismatch is the default errno (ENOSYS), and a deny-list of the calls that answer EPERM. The
//! kernel runs both; among equal actions the filter installed last decides the errno (seccomp(2)),
//! so the deny-list goes last. A call of another ABI kills the process (seccompiler's prologue).

use seccompiler::{BpfProgram, TargetArch};
use serde::Deserialize;
use serde_json::{Value, json};

/// The profile as it is shipped.
pub const PROFILE: &str = include_str!("../../seccomp/profile.json");

/// A profile that cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum SeccompError {
    /// The file is not in OCI form.
    #[error("the seccomp profile cannot be read: {0}")]
    Parse(#[from] serde_json::Error),
    /// A part of it is not supported here.
    #[error("the seccomp profile cannot be compiled: {0}")]
    Unsupported(String),
    /// seccompiler refused it.
    #[error("the seccomp profile cannot be compiled: {0}")]
    Compile(#[from] seccompiler::Error),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciProfile {
    default_action: String,
    default_errno_ret: u32,
    syscalls: Vec<OciRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciRule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<OciArg>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciArg {
    index: u8,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

const EPERM: u32 = 1;

/// Compiles an OCI profile into the filters to install, in order.
///
/// # Errors
/// [`SeccompError`] naming the part that does not compile.
pub fn compile(profile: &str) -> Result<Vec<BpfProgram>, SeccompError> {
    let profile: OciProfile = serde_json::from_str(profile)?;
    if profile.default_action != "SCMP_ACT_ERRNO" {
        return Err(SeccompError::Unsupported(format!("default action {}", profile.default_action)));
    }
    let default = profile.default_errno_ret;
    let (mut allow, mut deny) = (Vec::new(), Vec::new());
    for rule in &profile.syscalls {
        let target = match (rule.action.as_str(), rule.errno_ret) {
            ("SCMP_ACT_ALLOW", _) => &mut allow,
            ("SCMP_ACT_ERRNO", Some(EPERM)) => &mut deny,
            // The default already answers so; the rule is there to be read.
            ("SCMP_ACT_ERRNO", Some(errno)) if errno == default && rule.args.is_empty() => continue,
            (action, errno) => {
                return Err(SeccompError::Unsupported(format!("action {action} with errno {errno:?}")));
            }
        };
        let args = rule.args.iter().map(argument).collect::<Result<Vec<_>, _>>()?;
        for name in &rule.names {
            target.push(if args.is_empty() {
                json!({ "syscall": name })
            } else {
                json!({ "syscall": name, "args": args })
            });
        }
    }
    let filters = json!({
        "allow": { "mismatch_action": { "errno": default }, "match_action": "allow", "filter": allow },
        "deny": { "mismatch_action": "allow", "match_action": { "errno": EPERM }, "filter": deny },
    });
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|e| SeccompError::Unsupported(format!("architecture: {e}")))?;
    let mut compiled = seccompiler::compile_from_json(filters.to_string().as_bytes(), arch)?;
    ["allow", "deny"]
        .iter()
        .map(|name| {
            compiled.remove(*name).ok_or_else(|| SeccompError::Unsupported(format!("no filter '{name}'")))
        })
        .collect()
}

fn argument(arg: &OciArg) -> Result<Value, SeccompError> {
    // Arguments that the kernel takes as int or unsigned long with all flags below bit 32; comparing
    // 32 bits keeps garbage in the upper half from walking round a rule.
    let (op, value) = match arg.op.as_str() {
        "SCMP_CMP_EQ" => (json!("eq"), arg.value),
        "SCMP_CMP_NE" => (json!("ne"), arg.value),
        "SCMP_CMP_MASKED_EQ" => (json!({ "masked_eq": arg.value }), arg.value_two),
        op => return Err(SeccompError::Unsupported(format!("comparison {op}"))),
    };
    Ok(json!({ "index": arg.index, "type": "dword", "op": op, "val": value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exe_the_shipped_profile_compiles_to_two_filters() {
        let filters = compile(PROFILE).unwrap();
        assert_eq!(filters.len(), 2);
        assert!(filters.iter().all(|f| f.len() > 100 && f.len() < 4096));
    }

    #[test]
    fn exe_every_rule_has_its_reason() {
        let value: Value = serde_json::from_str(PROFILE).unwrap();
        for rule in value["syscalls"].as_array().unwrap() {
            assert!(rule["comment"].as_str().is_some_and(|c| !c.is_empty()), "{rule}");
        }
    }

    #[test]
    fn exe_what_cannot_be_rendered_is_refused_by_name() {
        for (bad, word) in [
            (r#"{"defaultAction":"SCMP_ACT_ALLOW","defaultErrnoRet":1,"syscalls":[]}"#, "SCMP_ACT_ALLOW"),
            (
                r#"{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[{"names":["read"],"action":"SCMP_ACT_TRACE"}]}"#,
                "SCMP_ACT_TRACE",
            ),
        ] {
            let error = compile(bad).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
