//! Commands that end in every way: each gives its true result, and the next command runs.

use crate::Case;
use crate::host::{Host, Ran, eventually, leftovers, processes_with};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("cmd10_exit_codes_and_signals", endings),
    ("cmd7_output_past_the_bound_is_drained", flood),
    ("cmd7_streams_keep_their_order_and_offsets", order),
    ("cmd10_n5_file_size_limit", file_size),
    ("cmd10_n9_full_work_says_bytes_or_inodes", work_full),
    ("cmd10_pids_limit", fork_without_end),
    ("cmd10_memory_without_end", allocate_without_end),
    ("cmd6_deadline", deadline),
    ("cmd5_r3_cancel_ends_every_descendant", cancel),
    ("r2_a_detached_child_does_not_hold_the_run", detached),
    ("n6_loopback_works_and_nothing_else", loopback),
    ("n7_npm_install_fails_fast_with_a_reason", npm_install),
    ("cmd2_a_step_key_binds_its_arguments", step_key),
    ("cmd3_a_changed_workspace_is_refused", workspace_changed),
    ("cmd1_relative_directory", relative_directory),
    ("exe_work_is_a_writable_copy_of_a_read_only_source", work_copy),
    ("exe_one_processor_and_a_heap_within_the_limit", processor_view),
    ("exe_process_one_reaps_and_forwards", process_one),
    ("exe_environment_is_exact", environment),
    ("exe_dev_stdout_can_be_opened", dev_stdout),
];

fn session(host: &Host) -> String {
    let project = host.project(
        "plain",
        &[("a.txt", b"hello\n"), ("run.sh!", b"#!/bin/sh\necho ran\n"), ("sub/b.txt", b"b")],
    );
    host.session(&project)
}

fn run(host: &Host, command: &str) -> Ran {
    let ran = host.run(&session(host), command);
    assert_eq!(ran.run["cleanup"], "confirmed", "{ran:?}");
    assert_eq!(ran.run["state"], "finished", "{ran:?}");
    ran
}

fn endings(host: &Host) {
    let session = session(host);
    for (command, code, cause) in [
        ("true", 0, "exited"),
        ("exit 7", 7, "exited"),
        ("nosuchcommand", 127, "exited"),
        ("./a.txt", 126, "exited"),
        ("./run.sh", 0, "exited"),
        ("kill -TERM $$", 143, "signalled"),
        ("kill -KILL $$", 137, "signalled"),
        ("node -e 'process.abort()'; exit $?", 134, "exited"),
        ("exec node -e 'process.abort()'", 134, "signalled"),
        ("exit 137", 137, "exited"),
    ] {
        let ran = host.run(&session, command);
        assert_eq!((ran.code, ran.cause()), (code, cause), "{command}: {ran:?}");
    }
}

fn flood(host: &Host) {
    let ran = run(host, "head -c 10000000 /dev/zero | tr '\\0' x; echo the end >&2; exit 5");
    assert_eq!(ran.code, 5, "{ran:?}");
    assert_eq!(ran.run["output"]["stored_bytes"], 65_536);
    assert_eq!(ran.run["output"]["total_bytes"], 10_000_008);
    assert_eq!(ran.run["output"]["truncated"], true);
    assert_eq!(ran.output.len(), 65_536);
}

fn order(host: &Host) {
    let session = session(host);
    let ran = host.run(&session, "for i in 1 2 3 4 5 6 7 8 9; do echo out$i; echo err$i >&2; done");
    let want: String = (1..10).map(|i| format!("out{i}\nerr{i}\n")).collect();
    assert_eq!(ran.output, want);
    let id = ran.run["run_id"].as_str().unwrap();
    let mut glued = String::new();
    while glued.len() < want.len() {
        let offset = glued.len().to_string();
        let part = host.sal(&["commands", "logs", &session, "--run-id", id, "--offset", &offset]).ok();
        assert!(!part.stdout.is_empty());
        glued.push_str(&part.stdout[..7.min(part.stdout.len())]);
    }
    assert_eq!(glued, want);
}

fn file_size(host: &Host) {
    let ran = run(host, "head -c 2000000 /dev/zero > f; code=$?; wc -c < f; exit $code");
    assert_eq!((ran.code, ran.cause()), (153, "file_size_limit"), "{ran:?}");
    // The shell may tell of the signal first.
    assert_eq!(ran.output.lines().last(), Some("1048576"), "{ran:?}");
    let write = "node -e \"fs.writeFileSync('f', Buffer.alloc(2<<20))\"";
    let ran = run(host, write);
    assert_eq!((ran.code, ran.cause()), (1, "file_size_limit"), "{ran:?}");
    assert!(ran.output.contains("EFBIG"), "{ran:?}");
    assert!(ran.run["outcome"]["detail"].as_str().unwrap().starts_with("inferred"), "{ran:?}");
    let ran = run(host, &format!("{write} 2>/dev/null; code=$?; wc -c < f; exit $code"));
    assert_eq!((ran.code, ran.output.as_str()), (1, "1048576\n"), "{ran:?}");
}

fn work_full(host: &Host) {
    let one_mib = "node -e \"for(let i=0;;i++)fs.writeFileSync('f'+i,Buffer.alloc(1<<20,1))\"";
    let empty = "node -e \"for(let i=0;i<4200;i++)fs.writeFileSync('e'+i,'')\"";
    for (command, what) in [(one_mib, "bytes"), (empty, "inodes")] {
        let ran = run(host, command);
        assert_eq!((ran.code, ran.cause()), (1, "work_full"), "{ran:?}");
        assert!(ran.output.contains("ENOSPC"), "{ran:?}");
        assert_eq!(ran.run["outcome"]["detail"], format!("/work has no {what} left"), "{ran:?}");
    }
    let ran = run(host, "i=0; while head -c 1048576 /dev/zero > f$i; do i=$((i+1)); done; exit 1");
    assert_eq!((ran.code, ran.cause()), (1, "work_full"), "{ran:?}");
    assert_eq!(ran.run["outcome"]["oom_kills"], 0, "{ran:?}");
}

fn fork_without_end(host: &Host) {
    let ran = run(host, "while sleep 100 & do :; done; exit 1");
    assert_ne!(ran.code, 0, "{ran:?}");
    assert_eq!(ran.cause(), "pids_limit", "{ran:?}");
    assert!(ran.run["outcome"]["pids_limit_hits"].as_u64().unwrap() > 0);
    // Where the kernel counts it (Linux 6.1 and later).
    let peak = &ran.run["headroom"]["pids_peak"];
    assert!(peak.is_null() || peak.as_u64() == Some(32), "{ran:?}");
}

fn allocate_without_end(host: &Host) {
    let eat = "node -e \"const a=[];for(;;)a.push(Buffer.alloc(1<<20,1))\"";
    let ran = run(host, &format!("exec {eat}"));
    assert_eq!((ran.code, ran.cause()), (137, "oom"), "{ran:?}");
    // The main process is the shell here; it outlives its child.
    let ran = run(host, &format!("{eat}; exit $?"));
    assert_eq!((ran.code, ran.cause()), (137, "exited"), "{ran:?}");
    assert_eq!(ran.run["outcome"]["oom_kills"], 1);
    assert_eq!(run(host, "true").code, 0);
}

fn deadline(host: &Host) {
    let start = Instant::now();
    let ran = run(host, "echo early; sleep 100");
    assert_eq!((ran.code, ran.cause()), (137, "deadline"), "{ran:?}");
    assert_eq!(ran.output, "early\n");
    let took = start.elapsed();
    assert!(took > Duration::from_secs(29) && took < Duration::from_secs(45), "{took:?}");
}

fn cancel(host: &Host) {
    let before = leftovers();
    let session = session(host);
    let command = "(setsid sh -c 'trap \"\" TERM; while :; do echo beat; sleep 0.1; done' &) ; kill -STOP $$";
    let id = host.begin(&session, "c1", command);
    assert!(eventually(|| host.log(&session, &id, 0).starts_with(b"beat\n")), "no heartbeat");
    let start = Instant::now();
    host.sal(&["commands", "cancel", &session, "--run-id", &id]).ok();
    assert!(start.elapsed() < Duration::from_secs(5));
    let left: Vec<String> = leftovers().into_iter().filter(|left| !before.contains(left)).collect();
    assert!(left.is_empty(), "the cancel was answered before all was gone: {left:?}");
    let seen = host.inspect(&session, &id);
    assert_eq!((&seen["state"], &seen["cleanup"]), (&"finished".into(), &"confirmed".into()), "{seen}");
    assert_eq!(seen["outcome"]["cause"], "cancelled", "{seen}");
    let beats = host.log(&session, &id, 0);
    assert_eq!(seen["output"]["stored_bytes"], beats.len(), "{seen}");
    std::thread::sleep(Duration::from_millis(500));
    assert!(host.log(&session, &id, 0) == beats, "a later heartbeat");
    let again = host.sal(&["commands", "cancel", &session, "--run-id", &id]);
    assert!(format!("{}{}", again.stdout, again.stderr).contains("already finished"), "{again:?}");
}

fn detached(host: &Host) {
    let session = session(host);
    let start = Instant::now();
    let ran = host.run(&session, "echo before; setsid sleep 8061 & exit 3");
    let took = start.elapsed();
    assert_eq!((ran.code, ran.cause(), ran.output.as_str()), (3, "exited", "before\n"), "{ran:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(processes_with("8061"), Vec::<i32>::new(), "the sleeper lives");
}

fn loopback(host: &Host) {
    let ran = run(
        host,
        "node -e \"const s=require('http').createServer((q,r)=>r.end('ok')).listen(0,'127.0.0.1',async()=>{\
         for(const h of ['127.0.0.1','localhost']){const r=await fetch('http://'+h+':'+s.address().port);\
         console.log(r.status,await r.text())}s.close()})\"",
    );
    assert_eq!((ran.code, ran.output.as_str()), (0, "200 ok\n200 ok\n"), "{ran:?}");
    // An address of RFC 5737, which nobody has.
    let ran = run(
        host,
        "node -e \"fetch('http://192.0.2.1').catch(e=>{console.log(e.cause.code);process.exit(9)})\"",
    );
    assert_eq!((ran.code, ran.output.as_str()), (9, "ENETUNREACH\n"), "{ran:?}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let ran = run(
        host,
        &format!(
            "node -e \"require('net').connect({port},'127.0.0.1').on('error',e=>{{console.log(e.code);process.exit(9)}})\""
        ),
    );
    assert_eq!((ran.code, ran.output.as_str()), (9, "ECONNREFUSED\n"), "{ran:?}");
}

fn npm_install(host: &Host) {
    let start = Instant::now();
    let ran = run(host, "npm install left-pad");
    assert_eq!((ran.code, ran.cause()), (1, "exited"), "{ran:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert!(ran.output.contains("ENOTCACHED") || ran.output.contains("offline"), "{ran:?}");
}

fn step_key(host: &Host) {
    let session = session(host);
    let start = |command: &str| {
        host.sal(&[
            "commands",
            "start",
            &session,
            "--step-key",
            "k1",
            "--json",
            "--wait",
            "--command",
            command,
        ])
    };
    let first = start("echo once; exit 4");
    let second = start("echo once; exit 4");
    assert_eq!((first.code, second.code), (4, 4), "{first:?} {second:?}");
    let all = host.sal(&["commands", "list", &session, "--json"]).ok().stdout;
    assert_eq!(all.matches("\"run_id\"").count(), 1, "{all}");
    let third = start("echo twice");
    assert_eq!(third.code, 125, "{third:?}");
    assert_eq!(third.error()["code"], "conflict", "{third:?}");
}

fn workspace_changed(host: &Host) {
    let session = session(host);
    let seen = host.sal(&["workspace", "inspect", &session, "--json"]).ok().json();
    let root = std::path::PathBuf::from(seen["root"].as_str().unwrap());
    assert_eq!(seen["digest"], seen["observed_digest"]);
    std::fs::write(root.join("a.txt"), "changed\n").unwrap();
    let refused = host.sal(&["commands", "start", &session, "--json", "--command", "true"]);
    assert_eq!(refused.code, 125, "{refused:?}");
    assert_eq!(refused.error()["code"], "workspace_changed");
    assert!(refused.error()["message"].as_str().unwrap().contains("a.txt"), "{refused:?}");
    let seen = host.sal(&["workspace", "inspect", &session, "--json"]).ok().json();
    assert_eq!(seen["changes"][0]["path"], "a.txt", "{seen}");
}

fn relative_directory(host: &Host) {
    let session = session(host);
    let start = |cwd: &str| {
        host.sal(&["commands", "start", &session, "--wait", "--cwd", cwd, "--command", "pwd; cat b.txt"])
    };
    assert_eq!(start("sub").ok().stdout, "/work/sub\nb");
    for bad in ["../etc", "/etc", "nowhere", "a.txt", "sub/../..", "../../proc/self/fd/7"] {
        let refused = start(bad);
        assert!(refused.code == 125 || refused.code == 2, "a2 {bad}: {refused:?}");
    }
}

fn work_copy(host: &Host) {
    let session = session(host);
    let ran = host.run(&session, "echo x >> a.txt && cat a.txt && echo y > /source/a.txt");
    assert_ne!(ran.code, 0);
    assert!(ran.output.contains("hello\nx\n") && ran.output.contains("Read-only file system"), "{ran:?}");
    let ran = host.run(&session, "cat a.txt; ls -ld /work/run.sh /work/sub | cut -c1-10");
    assert_eq!(ran.output, "hello\n-rwxr-xr-x\ndrwxr-xr-x\n", "{ran:?}");
}

fn processor_view(host: &Host) {
    let ran = run(
        host,
        "nproc; node -p 'os.availableParallelism()+\" \"+process.constrainedMemory()+\" \"+(v8.getHeapStatistics().heap_size_limit < 300e6)'",
    );
    assert_eq!(ran.output, "1\n1 268435456 true\n", "{ran:?}");
}

fn process_one(host: &Host) {
    // Forty orphans one after another would fill 32 pids if nobody reaped them.
    let ran = run(host, "i=0; while [ $i -lt 40 ]; do (sh -c 'true &' ); i=$((i+1)); done; echo done");
    assert_eq!((ran.code, ran.output.as_str()), (0, "done\n"), "{ran:?}");
    let ran = run(host, "trap 'echo got; exit 6' TERM; kill -TERM 1; sleep 5");
    assert_eq!((ran.code, ran.output.as_str()), (6, "got\n"), "{ran:?}");
    let ran = run(host, "kill -TERM $$; echo not reached");
    assert_eq!((ran.code, ran.output.as_str()), (143, ""), "{ran:?}");
}

fn environment(host: &Host) {
    let ran = run(host, "cat /proc/self/environ | tr '\\0' '\\n' | sort");
    let mut want: Vec<String> = salaam::domain::profile::Profile::fixed()
        .environment
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    want.push("PWD=/work".to_owned());
    let mut got: Vec<&str> = ran.output.lines().collect();
    // Shells add these on their own account.
    got.retain(|l| !["SHLVL=", "OLDPWD=", "_="].iter().any(|p| l.starts_with(p)));
    want.retain(|l| got.contains(&"PWD=/work") || l != "PWD=/work");
    want.sort();
    got.sort_unstable();
    assert_eq!(got, want);
}

fn dev_stdout(host: &Host) {
    let ran = run(
        host,
        "echo a > /dev/stdout; echo b > /dev/stderr; cat < /dev/stdin; echo c > /dev/null; test ! -t 0",
    );
    assert_eq!((ran.code, ran.output.as_str()), (0, "a\nb\n"), "{ran:?}");
}
