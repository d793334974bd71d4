//! Attacks from inside a command. Each is run under the fixed profile, where it must fail, and under a
//! profile without the control that stops it, where the same check must see it succeed.

use crate::Case;
use crate::host::{Host, SAL, eventually};
use crate::weak::{Bench, Weak, bundle, own_bundle, with};
use salaam::domain::profile::Profile;
use std::os::linux::net::SocketAddrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const CASES: &[Case] = &[
    ("a1_host_executable_through_proc", a1),
    ("a2_descriptors_and_directories_of_the_host", a2),
    ("a4_device_nodes_swapped_in_the_image", a4),
    ("a5_capability_sets", a5),
    ("a8_kernel_files", a8),
    ("a9_sockets_of_the_host", a9),
    ("a11_terminals", a11),
    ("a13_process_trees", a13),
    ("a14_memory_and_space", a14),
    ("a15_output_without_end", a15),
    ("exe_read_only_source_and_image", read_only),
];

fn canary() -> (Vec<u8>, String) {
    use sha2::{Digest, Sha256};
    let sal = Sha256::digest(std::fs::read(SAL).unwrap()).to_vec();
    (sal, std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap())
}

/// Runs `command` under both profiles, between two looks at the host.
fn both(host: &Host, weak: &Profile, command: &str) -> (Weak, Weak) {
    let before = canary();
    let bench = Bench::new(|_| bundle(host.image));
    let held = bench.run(&Profile::fixed(), command);
    let freed = bench.run(weak, command);
    assert!(held.left.is_empty() && freed.left.is_empty(), "{held:?} {freed:?}");
    assert_eq!(before, canary(), "the host was changed");
    let next = bench.run(&Profile::fixed(), "echo next");
    assert_eq!(next.output, "next\n");
    (held, freed)
}

fn a1(host: &Host) {
    let command = "for f in /proc/self/exe /proc/1/exe; do (echo x > $f) 2>/dev/null && echo WROTE $f; done;\
                   head -c 4 /proc/1/exe 2>/dev/null | grep -q ELF && echo READ; ls -l /proc/1/fd >/dev/null 2>&1 && echo LISTED; true";
    let (held, freed) = both(host, &with(|p| p.non_dumpable_init = false), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    assert_eq!(freed.output, "READ\nLISTED\n", "{freed:?}");
}

fn a2(host: &Host) {
    let command = "ls /proc/$$/fd; for f in /proc/$$/fd/*; do test -d $f/. && echo ENTERED; done; true";
    let (held, freed) = both(host, &with(|p| p.close_descriptors = false), command);
    let host_fds = |w: &Weak| w.output.lines().filter(|l| l.parse::<u32>().is_ok_and(|fd| fd > 2)).count();
    assert_eq!(host_fds(&held), 0, "{held:?}");
    assert!(!held.output.contains("ENTERED"), "{held:?}");
    assert_eq!(host_fds(&freed), 1, "{freed:?}");
}

/// Gives a root file system's `/dev` these links and nothing else.
fn plant(rootfs: &Path, links: &[(&str, &str)]) {
    let dev = rootfs.join("dev");
    let _ = std::fs::remove_dir_all(&dev);
    for (name, target) in links {
        let link = dev.join(name);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, link).unwrap();
    }
}

fn a4(host: &Host) {
    let before = canary();
    let bench = Bench::new(|dir| own_bundle(host.image, dir));
    let rootfs = &bench.backend.bundle.lower[0];
    let no_fresh_dev = with(|p| p.deny_devices = false);

    // The links of the CVEs: with the control the container's /dev holds none of them.
    let hostile = [
        ("null", "/proc/sys/kernel/core_pattern"),
        ("pts/0", "/proc/sysrq-trigger"),
        ("console", "/proc/sys/kernel/core_pattern"),
    ];
    let command = "test -c /dev/null && ! test -L /dev/null && echo x > /dev/null && echo null; \
                   for f in /dev/pts/0 /dev/console; do test -L $f && echo LINK $f; done; echo ok";
    plant(rootfs, &hostile);
    let held = bench.run(&Profile::fixed(), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), "null\nok\n"), "{held:?}");
    // Nor when they come and go while the container is created.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let link = rootfs.join("dev/null");
            // Bounded, should the other thread fail.
            for _ in 0..100_000 {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let _ = std::fs::remove_file(&link);
                let _ = std::os::unix::fs::symlink(hostile[0].1, &link);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let tries: Vec<Weak> = (0..5).map(|_| bench.run(&Profile::fixed(), command)).collect();
        done.store(true, Ordering::Relaxed);
        for held in tries {
            assert_eq!((held.code(), held.output.as_str()), (Some(0), "null\nok\n"), "{held:?}");
        }
    });
    // Without it the link is followed; that the name it leads to is taken is what ends the start
    // (mknod(2) never opens or replaces).
    plant(rootfs, &hostile);
    let freed = bench.run(&no_fresh_dev, command);
    assert!(freed.start_failed.as_ref().is_some_and(|why| why.contains("prepare rootfs")), "{freed:?}");
    assert_eq!(freed.left, Vec::<String>::new(), "{freed:?}");
    assert_eq!(before, canary());

    // Where the name is free, the image decides where the node is made and what the command gets.
    let links = [("null", "/planted"), ("console", "/proc/sys/net/ipv4/ip_default_ttl")];
    let reached = "readlink /dev/null; test -c /planted && echo MADE; readlink /dev/console; true";
    plant(rootfs, &links);
    let held = bench.run(&Profile::fixed(), reached);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    let freed = bench.run(&no_fresh_dev, reached);
    assert_eq!(freed.output, "/planted\nMADE\n/proc/sys/net/ipv4/ip_default_ttl\n", "{freed:?}");

    // And what is written to such a device reaches procfs, once identity and read-only paths do not
    // stand in the way. The file is the network namespace's own, and so harmless.
    let write = "(echo 65 > /dev/console) 2>/dev/null; cat /proc/sys/net/ipv4/ip_default_ttl";
    for (fresh_dev, ttl) in [(true, "64\n"), (false, "65\n")] {
        plant(rootfs, &links[1..]);
        let profile = with(|p| {
            p.uid = 0;
            p.masked_paths = false;
            p.deny_devices = fresh_dev;
        });
        let seen = bench.run(&profile, write);
        assert_eq!((seen.code(), seen.output.as_str()), (Some(0), ttl), "{seen:?}");
    }
    assert_eq!(before, canary());
    assert_eq!(bench.run(&Profile::fixed(), "echo next").output, "next\n");
}

fn a5(host: &Host) {
    let command = "grep ^Cap /proc/self/status | grep -v '\t0000000000000000$'; true";
    let (held, freed) = both(host, &with(|p| p.capabilities = vec!["CAP_NET_RAW".into()]), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    assert!(freed.output.contains("CapInh") && freed.output.contains("CapAmb"), "{freed:?}");
}

fn a8(host: &Host) {
    // Only the last is harmless where it succeeds: it belongs to the network namespace.
    let command = "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/sys/vm/overcommit_memory \
                   /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory/cgroup.procs \
                   /sys/fs/cgroup/memory/release_agent /sys/fs/cgroup/memory.max /sys/fs/cgroup/cgroup.procs \
                   /sys/fs/cgroup/release_agent /sys/kernel/profiling /proc/1/oom_score_adj; do \
                   (echo 1 > $f) 2>/dev/null && echo WROTE $f; done; \
                   (mkdir /sys/fs/cgroup/memory/x || mkdir /sys/fs/cgroup/x) 2>/dev/null && echo MADE; true";
    let bench = Bench::new(|_| bundle(host.image));
    let before = canary();
    let held = bench.run(&Profile::fixed(), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    let harmless = "(echo 65 > /proc/sys/net/ipv4/ip_default_ttl) 2>/dev/null && echo WROTE; true";
    let held = bench.run(&Profile::fixed(), harmless);
    assert_eq!(held.output, "", "{held:?}");
    let freed = bench.run(
        &with(|p| {
            p.uid = 0;
            p.masked_paths = false;
        }),
        harmless,
    );
    assert_eq!(freed.output, "WROTE\n", "{freed:?}");
    assert_eq!(before, canary());
}

fn a9(host: &Host) {
    let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("salaam-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let control = host.state().join("control.sock");
    let command = format!(
        "node -e \"const n=require('net');for(const a of [{{port:{},host:'127.0.0.1'}},{{path:'\\0{name}'}},{{path:'{}'}}])\
         n.connect(a).on('connect',function(){{console.log('CONNECTED',JSON.stringify(a).slice(0,9));this.destroy()}}).on('error',()=>{{}})\"; \
         ls /sys/class/net; cat /proc/net/unix | grep -c '@'",
        tcp.local_addr().unwrap().port(),
        control.display(),
    );
    let (held, freed) = both(host, &with(|p| p.namespaces.network = false), &command);
    assert_eq!(held.output, "lo\n0\n", "{held:?}");
    assert_eq!(freed.output.matches("CONNECTED").count(), 2, "{freed:?}");
    assert!(!freed.output.contains("control"), "{freed:?}");
}

fn a11(host: &Host) {
    let command = "(exec 3<>/dev/tty) 2>/dev/null && echo TTY; test -t 0 && echo TTY; test -t 1 && echo TTY; \
                   ls /dev/pts /dev/console /dev/tty0 /dev/ttyS0 2>/dev/null; true";
    let bench = Bench::new(|_| bundle(host.image));
    let held = bench.run(&Profile::fixed(), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    // TIOCSTI itself is called by the probe; see the negatives of the seccomp control.
}

fn a13(host: &Host) {
    let bomb = "b() { b | b & }; b; sleep 0.5; n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n";
    let bench = Bench::new(|_| bundle(host.image));
    let held = bench.run(&Profile::fixed(), bomb);
    let hits = held.outcome.as_ref().unwrap().pids_limit_hits;
    assert!(hits > 0 && held.left.is_empty(), "{held:?}");
    let tree =
        "for i in $(seq 90); do sleep 30 & done; n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; echo $n";
    let held = bench.run(&Profile::fixed(), tree);
    let freed = bench.run(&with(|p| p.pids = 128), tree);
    let count = |w: &Weak| w.output.lines().rev().find_map(|l| l.trim().parse::<u32>().ok()).unwrap_or(0);
    assert!(count(&held) <= 32, "{held:?}");
    assert!(count(&freed) > 90, "{freed:?}");
    let stubborn = "(setsid sh -c 'trap \"\" TERM INT HUP; (sleep 60 &) ; sleep 60' &); (sleep 60 & kill -STOP $!); exit 4";
    let start = Instant::now();
    let held = bench.run(&Profile::fixed(), stubborn);
    assert_eq!((held.code(), held.left.len()), (Some(4), 0), "{held:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

fn a14(host: &Host) {
    let session = host.session(&host.project("a14", &[("a.txt", b"a")]));
    let before = host.service_rss();
    let sparse = host.run(
        &session,
        "node -e \"fs.truncateSync(fs.openSync('f','w'),1e11)\"; code=$?; ls -l f; exit $code",
    );
    assert_ne!(sparse.code, 0, "{sparse:?}");
    let touch =
        "exec node -e \"const a=[];for(let i=0;i<400;i++)a.push(Buffer.alloc(1<<20,1));console.log('ALL')\"";
    let held = host.run(&session, touch);
    assert_eq!(held.cause(), "oom", "{held:?}");
    let fill =
        "i=0; while [ $i -lt 40 ]; do head -c 1000000 /dev/zero > f$i || exit 1; i=$((i+1)); done; echo ALL";
    let held = host.run(&session, fill);
    assert_eq!(held.cause(), "work_full", "{held:?}");
    assert!(host.service_rss() < before + 4_096, "the service grew by more than 4 MiB");
    let bench = Bench::new(|_| bundle(host.image));
    let freed = bench.run(&with(|p| p.memory_bytes *= 4), touch);
    assert_eq!(freed.output, "ALL\n", "{freed:?}");
    let freed = bench.run(&with(|p| p.work.bytes *= 2), fill);
    assert_eq!(freed.output, "ALL\n", "{freed:?}");
}

fn a15(host: &Host) {
    let session = host.session(&host.project("a15", &[("a.txt", b"a")]));
    let before = host.service_rss();
    let ran = host.run(&session, "head -c 10000000000 /dev/zero");
    let output = &ran.run["output"];
    // On a slow processor the deadline comes first; either way the bound holds.
    assert!(matches!(ran.cause(), "exited" | "deadline"), "{:?}", ran.run);
    assert_eq!(output["stored_bytes"], 65_536, "{:?}", ran.run);
    assert_eq!(output["truncated"], true);
    assert!(output["total_bytes"].as_u64().unwrap() > 100_000_000, "{:?}", ran.run);
    assert!(host.service_rss() < before + 4_096, "the service grew by more than 4 MiB");
    let bench = Bench::new(|_| bundle(host.image));
    let line = "head -c 200000 /dev/zero | tr '\\0' x";
    assert_eq!(bench.run(&Profile::fixed(), line).stored, 65_536);
    assert_eq!(bench.run(&with(|p| p.output_bytes *= 2), line).stored, 131_072);
    // A reader that closes early holds nobody up.
    let mut command = host.command(&[
        "commands",
        "start",
        &session,
        "--wait",
        "--command",
        "yes | head -c 1000000; echo end",
    ]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let _ = child.wait().unwrap();
    // The run may outlive its reader, and holds its place until it has ended.
    assert!(eventually(|| host.runs(&session).iter().all(|run| run["state"] == "finished")));
    assert_eq!(host.run(&session, "true").code, 0);
}

fn read_only(host: &Host) {
    let command = "(echo x > /source/.t) 2>/dev/null && echo SOURCE; \
                   while read -r a b c d at options rest; do [ $at = /source ] && case $options in rw*) echo RW;; esac; done \
                   < /proc/self/mountinfo; \
                   (echo x > /etc/passwd) 2>/dev/null && echo IMAGE; (echo x > /usr/t) 2>/dev/null && echo IMAGE; true";
    let (held, freed) = both(host, &with(|p| p.readonly_source = false), command);
    assert_eq!((held.code(), held.output.as_str()), (Some(0), ""), "{held:?}");
    assert!(freed.output.contains("RW"), "{freed:?}");
}
