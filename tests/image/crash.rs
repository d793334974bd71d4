//! Imports that are killed, find no space, or run beside each other (IMG.2).

use crate::case::{Case, assert_nothing_left, files_below};
use crate::oci_layout::{Item, LayoutDir, base, dir, file, hardlink, make};
use salaam::image::{ImageRecord, Store};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const SAL: &str = env!("CARGO_BIN_EXE_sal");
/// Instants at which an import is killed, spread over its time.
const KILLS: u32 = 16;

/// Three layers that take an import through each of its steps: new files, copied-up directories,
/// whiteouts, links across layers, mount points.
fn layers() -> Vec<Vec<Item>> {
    let text = |seed: usize| (0..4000).map(|i| format!("{}", seed * 7919 + i * i)).collect::<String>();
    let mut low = base();
    let mut middle = vec![dir("usr/lib/")];
    for i in 0..150 {
        low.push(file(&format!("usr/lib/{i}/a"), &text(i)));
        middle.push(file(&format!("usr/lib/{i}/b"), &text(i + 1)));
    }
    let mut high = vec![hardlink("usr/linked", "usr/lib/3/a")];
    high.extend((0..50).map(|i| file(&format!("usr/lib/.wh.{i}"), "")));
    vec![low, middle, high]
}

fn import(store: &Path, layout: &Path) -> Child {
    Command::new(SAL)
        .args(["image", "import", "--json", "--image-store"])
        .args([store, layout])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What must be the same whenever and wherever an image is imported.
fn essence(record: &ImageRecord) -> String {
    let chains: Vec<_> = record.layers.iter().map(|l| &l.chain).collect();
    format!("{:?} {:?} {} {:?}", record.pin, record.blobs, record.unpacked, chains)
}

/// Everything in the store but its locks.
fn count(store: &Store) -> usize {
    files_below(store.dir()).iter().filter(|p| !p.to_str().unwrap().ends_with("lock")).count()
}

fn sound(store: &Store, layout: &LayoutDir) -> ImageRecord {
    let record = store.import_layout(&layout.dir, None).unwrap();
    assert!(store.verify_all().unwrap().is_sound());
    store.check(&record.reference().unwrap()).unwrap();
    assert_eq!(std::fs::read_dir(store.dir().join("tmp")).unwrap().count(), 0);
    record
}

#[test]
fn img2_an_import_killed_at_any_instant_leaves_the_next_one_everything_to_do_and_nothing_else() {
    let case = Case::new();
    let layout = case.layout(&layers());
    let begin = Instant::now();
    assert!(import(case.store.dir(), &layout.dir).wait().unwrap().success());
    let took = begin.elapsed();
    let whole = sound(&case.store, &layout);
    let expected = count(&case.store);
    let mut kills = 0;
    for i in 0..KILLS {
        case.store.remove(&whole.reference().unwrap()).unwrap();
        assert_nothing_left(&case.store);
        let mut child = import(case.store.dir(), &layout.dir);
        std::thread::sleep(took.mul_f64(f64::from(i) / f64::from(KILLS)));
        child.kill().unwrap();
        kills += u32::from(!child.wait().unwrap().success());
        // Whatever was there, a half image never has a name.
        for record in case.store.list().unwrap() {
            assert!(case.store.verify(&record.reference().unwrap()).unwrap().is_sound());
        }
        assert_eq!(essence(&sound(&case.store, &layout)), essence(&whole), "after kill {i}");
        assert_eq!(count(&case.store), expected, "after kill {i}");
    }
    assert!(kills > KILLS / 3, "most imports ended before they were killed: {kills}");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(case.store.dir().to_str().unwrap()), "{mounts}");
}

/// Runs a script as root of a mount namespace of its own; `$1` is the mount point, `$2` the layout, `$3`
/// our executable.
fn in_own_mounts(script: &str, point: &Path, layout: &Path) -> Output {
    Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-euc", script, "sh"])
        .args([point, layout, Path::new(SAL)])
        .output()
        .unwrap()
}

#[test]
fn img2_an_import_without_space_says_so_and_leaves_nothing() {
    let case = Case::new();
    let layout = case.layout(&layers());
    let point = case.tmp.path().join("small");
    std::fs::create_dir(&point).unwrap();
    // From hardly anything to nearly enough, in bytes, then in inodes.
    for limit in [
        "size=64k",
        "size=400k",
        "size=1600k",
        "size=3000k",
        "size=5000k",
        "size=7000k",
        "nr_inodes=40",
        "nr_inodes=250",
        "nr_inodes=700",
    ] {
        let script = format!(
            "mount -t tmpfs -o mode=700,{limit} small \"$1\"
             if \"$3\" image import \"$2\" --image-store \"$1\" 2>\"$2.err\"; then echo imported; exit 1; fi
             grep -q 'No space left on device' \"$2.err\" || {{ cat \"$2.err\"; exit 1; }}
             left=$(find \"$1\" -mindepth 1 ! -name '*lock' -a ! -type d); test -z \"$left\" || {{ echo \"$left\"; exit 1; }}
             test -z \"$(ls -A \"$1/tmp\" 2>/dev/null)\"
             mount -o remount,size=200m,nr_inodes=10000 \"$1\"
             \"$3\" image import \"$2\" --image-store \"$1\" && \"$3\" image verify --image-store \"$1\""
        );
        let done = in_own_mounts(&script, &point, &layout.dir);
        assert!(done.status.success(), "{limit}: {}", String::from_utf8_lossy(&done.stdout));
    }
}

#[test]
fn img4_a_store_that_lies_on_an_overlay_is_unpacked_flat() {
    let case = Case::new();
    let layout = case.layout(&layers());
    let point = case.tmp.path().join("overlay");
    std::fs::create_dir(&point).unwrap();
    let script = "
        mount -t tmpfs tmpfs \"$1\" && cd \"$1\" && mkdir -m 700 lower upper work root && chmod 700 root
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root
        store=$1/root/images
        \"$3\" image import \"$2\" --image-store \"$store\" --json | grep '\"layered\":false'
        \"$3\" image verify --image-store \"$store\"
        test -d \"$store\"/bundles/*/rootfs/usr/lib/60
        test ! -e \"$store\"/bundles/*/rootfs/usr/lib/3
        test -z \"$(ls -A \"$store/layers\" \"$store/tmp\" | grep -v :)\"";
    let done = in_own_mounts(script, &point, &layout.dir);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn img2_imports_of_images_on_one_base_beside_each_other() {
    let case = Case::new();
    let dirs: Vec<_> = (0..3).map(|i| case.tmp.path().join(format!("layout-{i}"))).collect();
    let layouts: Vec<_> = dirs
        .iter()
        .enumerate()
        .map(|(i, dir)| {
            let mut all = layers();
            all.push(vec![file("which", &i.to_string())]);
            make(dir, &format!("localhost/image-{i}"), &all)
        })
        .collect();
    // Each twice, and one of them killed on the way.
    let mut children: Vec<Child> =
        layouts.iter().chain(&layouts).map(|l| import(case.store.dir(), &l.dir)).collect();
    std::thread::sleep(Duration::from_millis(150));
    children[0].kill().unwrap();
    for (i, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert!(i == 0 || output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(case.store.list().unwrap().len(), 3);
    assert!(case.store.verify_all().unwrap().is_sound());
    assert_eq!(std::fs::read_dir(case.store.dir().join("layers")).unwrap().count(), 6);
    assert_eq!(std::fs::read_dir(case.store.dir().join("tmp")).unwrap().count(), 0);
}
