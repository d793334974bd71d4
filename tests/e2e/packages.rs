//! Real projects from the npm registry give the result that they give outside.

use crate::Case;
use crate::host::{Host, fixture, summary};

pub const CASES: &[Case] = &[
    ("main_job_fastify_error_36_pass", error),
    ("main_job_fastify_forwarded_13_pass", forwarded),
    ("main_job_fastify_busboy_270_pass", busboy),
    ("main_job_a_failing_project_keeps_its_exit_code", failing),
    ("n8_npm_test_and_user_info", npm_test),
];

fn passes(host: &Host, project: &str, tests: u32) {
    let session = host.session(&fixture(project));
    let ran = host.run(&session, "node --test");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.cause(), "exited");
    for (word, count) in [("tests", tests), ("pass", tests), ("fail", 0)] {
        let line = format!("{word} {count}");
        assert_eq!(summary(&ran.output, &line), 1, "{line}: {ran:?}");
    }
}

fn error(host: &Host) {
    passes(host, "error-4.3.0", 36);
}

fn forwarded(host: &Host) {
    passes(host, "forwarded-3.1.2", 13);
}

fn busboy(host: &Host) {
    passes(host, "busboy-3.2.6", 270);
}

fn failing(host: &Host) {
    let test = b"require('node:test')('no', () => { throw new Error('on purpose') })";
    let project = host.project("failing", &[("a.test.js", test)]);
    let ran = host.run(&host.session(&project), "node --test");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.output.contains("on purpose") && ran.output.contains("fail 1"), "{ran:?}");
    let ran = host.run(&host.session(&project), "node --test || exit 42");
    assert_eq!(ran.code, 42, "{ran:?}");
}

fn npm_test(host: &Host) {
    let package = br#"{"name":"x","version":"1.0.0","scripts":{"test":"node --test"}}"#;
    let test = b"require('node:test')('ok', () => {})";
    let project = host.project("npm", &[("package.json", package), ("a.test.js", test)]);
    let session = host.session(&project);
    let ran = host.run(&session, "npm test");
    assert_eq!((ran.code, ran.cause()), (0, "exited"), "{ran:?}");
    assert_eq!((summary(&ran.output, "pass 1"), summary(&ran.output, "fail 0")), (1, 1), "{ran:?}");
    let ran = host.run(&session, r#"node -p 'const u=os.userInfo(); u.uid+":"+u.gid+":"+u.homedir'"#);
    assert_eq!((ran.code, ran.output.trim()), (0, "65532:65532:/tmp/home"), "{ran:?}");
    let names: Vec<_> = std::fs::read_dir(&project).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "something was written into the project: {names:?}");
    let view = host.sal(&["workspace", "inspect", &session, "--json"]).ok().json();
    assert_eq!(view["changes"], serde_json::json!([]), "something was written into the source: {view}");
}
