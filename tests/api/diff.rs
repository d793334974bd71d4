//! `workspace diff` over the interface and as a program, on two revisions that lie on disk.

use crate::rig::Rig;
use salaam::domain::change::{Base, TreeChange};
use salaam::domain::digest::Digest;
use salaam::domain::ids::SessionId;
use salaam::domain::manifest::{FileEntry, TreeManifest};
use salaam::domain::refusal::{Code, Refusal};
use salaam::domain::relpath::RelPath;
use salaam::domain::session::{Excluded, Workspace};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

type Files<'a> = &'a [(&'a str, bool, &'a [u8])];

const IMPORT: Files<'static> = &[
    ("bin", false, b"\0one"),
    ("caf\u{e9}.js", false, b"let caf\xc3\xa9 = 1;\r\n"),
    ("esc", false, b"\x1b]52;c;x\x07\n"),
    ("evil\u{202e}", false, b"a\n"),
    ("run.sh", true, b"exit 0\n"),
];
const LATER: Files<'static> = &[
    ("bin", false, b"\0two!"),
    ("caf\u{e9}.js", false, b"let caf\xc3\xa9 = 2;\r\n\xe2\x80\xae"),
    ("esc", false, b"\x1b]52;c;y\x07\n"),
    ("evil\u{202e}", true, b"a\n"),
];

fn write(root: &Path, files: Files<'_>) {
    for (path, executable, bytes) in files {
        std::fs::write(root.join(path), bytes).unwrap();
        let mode = if *executable { 0o755 } else { 0o644 };
        std::fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).unwrap();
    }
}

/// The import is [`IMPORT`], whatever the project holds.
fn import(root: &Path, _: &Path) -> Result<Vec<Excluded>, Refusal> {
    write(root, IMPORT);
    Ok(vec![])
}

/// `files` as the next revision.
fn changed(base: &Workspace, files: Files<'_>) -> TreeChange {
    let path = |path: &str| RelPath::parse(path).unwrap();
    let entry = |(at, executable, bytes): &(&str, bool, &[u8])| FileEntry {
        path: path(at),
        executable: *executable,
        length: bytes.len() as u64,
        content: Digest::of(bytes),
    };
    TreeChange {
        base: Base { revision: base.revision, digest: base.digest.clone() },
        target: TreeManifest::new(files.iter().map(entry).collect(), vec![]),
        written: files.iter().map(|(at, _, bytes)| (path(at), bytes.to_vec())).collect(),
    }
}

/// A served session with two revisions.
struct Two {
    rig: Rig,
    session: SessionId,
    /// The directory of revision 1.
    import: PathBuf,
}

impl Two {
    async fn new() -> Self {
        Self::slow(Duration::ZERO).await
    }

    async fn slow(takes: Duration) -> Self {
        let rig = Rig::slow("state", import, takes).await;
        let session = rig.coding().await;
        let imported = rig.service.session(&session).await.unwrap().workspace.unwrap();
        rig.service.publish(&session, changed(&imported, LATER), None).await.unwrap();
        Self { rig, session, import: imported.root.into() }
    }

    fn path(&self, query: &str) -> String {
        format!("/v1/sessions/{}/workspace/diff{query}", self.session)
    }

    async fn patch(&self) -> (u64, String) {
        let mut patch = self.rig.client().await.diff(&self.session, None).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(more) = patch.bytes.next().await.unwrap() {
            bytes.extend_from_slice(&more);
        }
        (patch.left_out, String::from_utf8(bytes).unwrap())
    }

    fn sal(&self, args: &[&str], more: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sal"));
        command.args(["workspace", "diff", self.session.as_str()]).args(args).env_clear();
        command.env("SAL_STATE", &self.rig.state).envs(more.iter().copied()).stdin(Stdio::null());
        tokio::task::block_in_place(|| command.output()).unwrap()
    }

    /// What a terminal is sent: script(1) gives the program one.
    fn terminal(&self, args: &str, more: &[(&str, &str)]) -> Option<String> {
        self.script(&format!("workspace diff {} {args}", self.session), more)
    }

    fn script(&self, args: &str, more: &[(&str, &str)]) -> Option<String> {
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_sal"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env_remove("NO_COLOR").env("TERM", "xterm");
        command.env("SAL_STATE", &self.rig.state).envs(more.iter().copied()).stdin(Stdio::null());
        match tokio::task::block_in_place(|| command.output()) {
            Ok(out) => Some(text(&out.stdout).replace("\r\n", "\n")),
            Err(error) => {
                eprintln!("the terminal half is skipped: script(1): {error}");
                None
            }
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn ws7_the_route_gives_the_patch_and_its_summary() {
    let two = Two::new().await;
    let (left_out, patch) = two.patch().await;
    assert_eq!(left_out, 1);
    assert!(patch.starts_with("# Binary files a/bin and b/bin differ; not in this patch\n"), "{patch}");
    assert!(patch.contains("\n-\u{1b}]52;c;x\u{7}\n+\u{1b}]52;c;y\u{7}\n"), "control characters go whole");
    assert!(patch.contains("deleted file mode 100755\n"), "{patch}");
    let (status, found) = two.rig.ask("GET", &two.path("?summary=true"), b"").await;
    assert_eq!(status, 200, "{found}");
    assert_eq!((&found["from_revision"], &found["to_revision"]), (&json!(1), &json!(2)));
    assert_eq!(found["patch_bytes"], patch.len());
    let files = found["files"].as_array().unwrap();
    let what: Vec<_> =
        files.iter().map(|f| [&f["path"], &f["change"], &f["content"], &f["in_patch"]]).collect();
    assert_eq!(
        json!(what),
        json!([
            ["bin", "modified", "binary", false],
            ["caf\u{e9}.js", "modified", "text", true],
            ["esc", "modified", "control", true],
            ["evil\u{202e}", "mode", "text", true],
            ["run.sh", "deleted", "text", true],
        ])
    );
    assert_eq!(files.iter().map(|f| f["patch_bytes"].as_u64().unwrap()).sum::<u64>(), patch.len() as u64);
    assert_eq!(files[4]["old"], json!({"mode": "100755", "bytes": 7}));
    assert_eq!((&files[4]["new"], &files[4]["deleted_lines"]), (&json!(null), &json!(1)));
    // The import compared with itself.
    let (status, found) = two.rig.ask("GET", &two.path("?summary=true&revision=1"), b"").await;
    assert_eq!((status, &found["files"]), (200, &json!([])));
}

#[tokio::test]
async fn ws7_what_cannot_be_compared_is_refused() {
    let two = Two::new().await;
    std::fs::rename(&two.import, two.import.with_extension("moved")).unwrap();
    let refusal = two.rig.client().await.diff(&two.session, None).await.unwrap_err();
    assert_eq!(refusal.code, Code::WorkspaceChanged);
    assert!(refusal.message.contains("cannot be opened"), "{refusal}");
    let (status, answer) = two.rig.ask("GET", &two.path("?revision=3"), b"").await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")));
    let (_, made) = two.rig.ask("POST", "/v1/sessions", br#"{"kind":"ordinary","cwd":"/project"}"#).await;
    let path = format!("/v1/sessions/{}/workspace/diff", made["session_id"].as_str().unwrap());
    let (status, answer) = two.rig.ask("GET", &path, b"").await;
    assert_eq!((status, &answer["error"]["code"]), (403, &json!("forbidden")), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ws7_a_pipe_gets_the_patch_byte_for_byte_and_is_told_what_it_leaves_out() {
    let two = Two::new().await;
    let (_, patch) = two.patch().await;
    let out = two.sal(&[], &[]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), patch.clone()), "{}", text(&out.stderr));
    let said = text(&out.stderr);
    assert!(said.starts_with("sal: binary changes that are not in the patch: 1; "), "{said}");
    assert_eq!(two.sal(&["--color", "never"], &[("TERM", "xterm")]).stdout, patch.as_bytes());
    let none = two.sal(&["--revision", "1"], &[]);
    assert_eq!((none.status.code(), none.stdout.len(), none.stderr.len()), (Some(0), 0, 0));
    let json = two.sal(&["--json"], &[]);
    let found: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((found["to_revision"].as_u64(), found["files"].as_array().unwrap().len()), (Some(2), 5));
    let refused = two.sal(&["--revision", "7", "--json"], &[]);
    let refused: (Option<i32>, Value) =
        (refused.status.code(), serde_json::from_slice(&refused.stderr).unwrap());
    assert_eq!((refused.0, &refused.1["error"]["code"]), (Some(125), &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ws7_lost_bytes_are_named_in_every_form_and_the_exit_code_tells_them() {
    let two = Two::new().await;
    let (_, whole) = two.patch().await;
    std::fs::write(two.import.join("run.sh"), "exit 1\n").unwrap();
    let out = two.sal(&[], &[]);
    let rest = whole.split_once("diff --git a/run.sh").unwrap().0;
    let named = "# Files a/run.sh and /dev/null differ; not in this patch, since published bytes are lost\n";
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(1), format!("{rest}{named}")));
    let said = text(&out.stderr);
    assert!(said.starts_with("sal: binary changes that are not in the patch: 1; "), "{said}");
    assert!(
        said.contains("\nsal: changes that are left out because published bytes are no longer there: 1; ")
    );
    let stat = two.sal(&["--stat"], &[]);
    let shown = text(&stat.stdout);
    assert!(stat.status.code() == Some(1) && shown.contains("| lost: published bytes"), "{shown}");
    assert!(shown.contains(" delete mode 100755 run.sh\n"), "{shown}");
    let json = two.sal(&["--json"], &[]);
    let found: Value = serde_json::from_slice(&json.stdout).unwrap();
    let file = &found["files"][4];
    assert_eq!(
        (json.status.code(), &file["content"], &file["in_patch"]),
        (Some(1), &json!("lost"), &json!(false))
    );
    let forced = two.sal(&["--color", "always"], &[]);
    assert_eq!(forced.status.code(), Some(1));
    assert!(text(&forced.stdout).contains(named.trim_end()), "{}", text(&forced.stdout));
    // Another revision that has the bytes gives them back.
    let current = two.rig.service.session(&two.session).await.unwrap().workspace.unwrap();
    two.rig.service.publish(&two.session, changed(&current, IMPORT), None).await.unwrap();
    let out = two.sal(&["--revision", "2"], &[]);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(0), whole));
}

#[tokio::test(flavor = "multi_thread")]
async fn ws7_a_terminal_is_told_that_a_long_import_or_diff_goes_on_and_a_pipe_is_not() {
    let two = Two::slow(Duration::from_millis(900)).await;
    let diff = format!("workspace diff {} --stat", two.session);
    let create = format!("session create --coding --cwd {}", env!("CARGO_MANIFEST_DIR"));
    for (args, said) in [(diff, "comparing"), (create, "importing")] {
        let mut piped = Command::new(env!("CARGO_BIN_EXE_sal"));
        piped.args(args.split(' ')).env_clear().env("SAL_STATE", &two.rig.state).stdin(Stdio::null());
        let piped = tokio::task::block_in_place(|| piped.output()).unwrap();
        assert_eq!((piped.status.code(), text(&piped.stderr).as_str()), (Some(0), ""), "{args}");
        assert!(!text(&piped.stdout).contains(said), "{args}");
        let Some(shown) = two.script(&args, &[]) else { return };
        // From 0.4 s on, on one line that is gone in the end.
        let (line, rest) = shown.rsplit_once("\r\u{1b}[K").unwrap_or_else(|| panic!("{shown:?}"));
        assert!(line.starts_with(&format!("\r{said} … 0.")) && !line.contains('\n'), "{shown:?}");
        assert!(line.matches(said).count() > 1, "{shown:?}");
        assert_eq!(rest.lines().count(), text(&piped.stdout).lines().count(), "{shown:?}");
        let dumb = two.script(&args, &[("TERM", "dumb")]).unwrap();
        assert!(!dumb.contains(said), "{dumb:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_stat_names_files_figures_and_modes() {
    let two = Two::new().await;
    let shown = text(&two.sal(&["--stat"], &[]).stdout);
    let want = " bin             | Bin 4 -> 5 bytes
 caf\u{e9}.js         | 3     ++-
 esc             | 2     +-
 evil\\u{202e}    | 0
 run.sh          | 1     -
 5 files changed, 3 insertions(+), 3 deletions(-)
 mode change 100644 => 100755 evil\\u{202e}
 delete mode 100755 run.sh
";
    let squeezed = |text: &str| {
        text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(squeezed(&shown), squeezed(want), "{shown}");
    assert!(text(&two.sal(&["--stat", "--revision", "1"], &[]).stdout).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_terminal_is_never_steered_by_a_diff() {
    let two = Two::new().await;
    let forced = text(&two.sal(&["--color", "always"], &[]).stdout);
    assert!(forced.contains("\u{1b}[31m-let caf\u{e9} = 1;\\u{d}\u{1b}[m\n"), "{forced:?}");
    let Some(coloured) = two.terminal("", &[]) else { return };
    assert_eq!(coloured, forced);
    let plain = two.terminal("", &[("NO_COLOR", "1")]).unwrap();
    for (args, more) in
        [("--color=never", ("TERM", "xterm")), ("--color auto", ("TERM", "dumb")), ("", ("NO_COLOR", "1"))]
    {
        let shown = two.terminal(args, &[more]).unwrap();
        assert_eq!(shown, plain, "{args} {more:?}");
        let steers =
            |c: &char| (c.is_control() && *c != '\n' && *c != '\t') || ('\u{202a}'..='\u{202e}').contains(c);
        assert_eq!(shown.chars().find(steers), None, "{shown:?}");
    }
    // Colours are the only sequences that there are.
    let bare = coloured.replace("\u{1b}[m", "");
    let bare = ["1", "31", "32", "33", "36"]
        .iter()
        .fold(bare, |text, code| text.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(bare, plain);
    for part in [
        "# Binary files a/bin and b/bin differ; not in this patch\n",
        "diff --git \"a/caf\u{e9}.js\" \"b/caf\u{e9}.js\"\n",
        "+let caf\u{e9} = 2;\\u{d}\n+\\u{202e}\n\\ No newline at end of file\n",
        "# modified esc: holds control characters; its text goes into a pipe or file only\n",
        "diff --git \"a/evil\\u{202e}\" \"b/evil\\u{202e}\"\nold mode 100644\nnew mode 100755\n",
    ] {
        assert!(plain.contains(part), "{part:?}\n{plain}");
    }
}
