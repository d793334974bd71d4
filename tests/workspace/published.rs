//! Reading a published revision: what an editor left in its directory is never shown as its content (FT.1).

use crate::Bench;
use salaam::domain::manifest::FileEntry;
use salaam::domain::refusal::Code;
use salaam::workspace::published::{read, read_one};
use std::os::unix::fs::symlink;
use std::path::Path;

/// Something that is done to a root by hand.
type Change = &'static dyn Fn(&Path);

/// A copy of five files, with their entries.
fn published(bench: &Bench) -> Vec<FileEntry> {
    for path in ["a", "d/b", "d/e/c", "same", "z"] {
        bench.write(path, format!("content of {path}"));
    }
    bench.import().unwrap().manifest.files().to_vec()
}

#[test]
fn ft1_every_file_is_read_as_it_was_published() {
    let bench = Bench::new();
    let files = published(&bench);
    let all = read(&bench.copy(), &files).unwrap();
    for (file, content) in files.iter().zip(all) {
        let content = String::from_utf8(content.unwrap()).unwrap();
        assert_eq!(content, format!("content of {}", file.path));
    }
    assert!(read(&bench.copies.join("none"), &files).is_err());
}

#[test]
fn a20_a_hand_edited_file_or_a_symlink_is_refused_by_name_and_the_others_are_read() {
    let edits: [(&str, Change); 7] = [
        ("a", &|root| std::fs::write(root.join("a"), "CONTENT of a").unwrap()),
        ("a", &|root| std::fs::write(root.join("a"), "longer than what was published").unwrap()),
        ("a", &|root| std::fs::remove_file(root.join("a")).unwrap()),
        ("d/b", &|root| {
            std::fs::remove_file(root.join("d/b")).unwrap();
            symlink(root.join("a"), root.join("d/b")).unwrap();
        }),
        ("d/e/c", &|root| {
            // The same content, but through a directory that is a symlink.
            std::fs::rename(root.join("d/e"), root.join("elsewhere")).unwrap();
            symlink("../elsewhere", root.join("d/e")).unwrap();
        }),
        ("same", &|root| {
            std::fs::remove_file(root.join("same")).unwrap();
            nix::unistd::mkfifo(&root.join("same"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }),
        ("z", &|root| {
            std::fs::remove_file(root.join("z")).unwrap();
            std::fs::create_dir(root.join("z")).unwrap();
        }),
    ];
    for (changed, edit) in edits {
        let bench = Bench::new();
        let files = published(&bench);
        edit(&bench.copy());
        for (file, content) in files.iter().zip(read(&bench.copy(), &files).unwrap()) {
            if file.path.as_str() != changed {
                assert!(content.is_ok(), "{changed}: {content:?}");
                continue;
            }
            let refused = content.unwrap_err();
            assert_eq!(refused.code, Code::WorkspaceChanged);
            assert!(refused.message.starts_with(&format!("'{changed}' was changed")), "{refused}");
            assert_eq!(read_one(&bench.copy(), file).unwrap_err(), refused);
        }
    }
}
