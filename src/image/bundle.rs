//! Our own `/etc` files, bound read-only over those of the image (IMG.4).

use super::error::ImageError;
use super::root::Root;
use crate::domain::profile::HOME;
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes of an image's passwd or group that are read.
const LIMIT: u64 = 1024 * 1024;
/// uid and gid of a command (EXE).
const ID: &str = "65532";
/// The name of both, and the host's name inside.
const NAME: &str = "salaam";
/// Names of the files.
pub(super) const FILES: [&str; 5] = ["passwd", "group", "hosts", "hostname", "resolv.conf"];

/// Writes the five files into `dir`, which is made with mode 0755. They are not synced yet.
pub(super) fn write(root: &Root, dir: &Path) -> Result<(), ImageError> {
    std::fs::create_dir(dir).map_err(ImageError::io("create", dir))?;
    std::fs::set_permissions(dir, Permissions::from_mode(0o755)).map_err(ImageError::io("chmod", dir))?;
    let user = format!("{NAME}:x:{ID}:{ID}:{NAME}:{HOME}:/bin/sh");
    let contents = [
        table(&image_file(root, "etc/passwd")?, 7, "root:x:0:0:root:/root:/bin/sh", &user),
        table(&image_file(root, "etc/group")?, 4, "root:x:0:", &format!("{NAME}:x:{ID}:")),
        format!("127.0.0.1 localhost\n127.0.0.1 {NAME}\n").into_bytes(),
        format!("{NAME}\n").into_bytes(),
        Vec::new(),
    ];
    for (name, content) in FILES.iter().zip(contents) {
        let path = dir.join(name);
        let mut file = File::create_new(&path).map_err(ImageError::io("create", &path))?;
        file.write_all(&content).map_err(ImageError::io("write", &path))?;
        file.set_permissions(Permissions::from_mode(0o644)).map_err(ImageError::io("chmod", &path))?;
    }
    Ok(())
}

/// The image's file, or nothing where it has none.
fn image_file(root: &Root, path: &str) -> Result<Vec<u8>, ImageError> {
    let shown = Path::new("/").join(path);
    let file = match root.read(path.as_bytes()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::INVAL) => return Ok(Vec::new()),
        Err(e) => return Err(ImageError::errno("read", &shown)(e)),
    };
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(ImageError::io("read", &shown))?;
    if bytes.len() as u64 > LIMIT {
        return Err(ImageError::Limit {
            what: format!("the image's {}", shown.display()),
            limit: LIMIT,
            unit: "bytes",
        });
    }
    Ok(bytes)
}

/// The image's well-formed lines (passwd(5), group(5)) without any that claims our name or id, `root`
/// in front if no line has id 0, and our own line last.
fn table(image: &[u8], fields: usize, root: &str, ours: &str) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut has_root = false;
    for line in image.split(|b| *b == b'\n') {
        let columns: Vec<_> = line.split(|b| *b == b':').collect();
        let (Some(name), Some(id)) = (columns.first(), columns.get(2)) else { continue };
        let foreign = *name != NAME.as_bytes() && *id != ID.as_bytes();
        if columns.len() == fields && foreign && !name.is_empty() && !line.contains(&0) {
            has_root |= *id == b"0";
            kept.extend_from_slice(line);
            kept.push(b'\n');
        }
    }
    let mut out = Vec::new();
    if !has_root {
        out.extend_from_slice(root.as_bytes());
        out.push(b'\n');
    }
    out.append(&mut kept);
    out.extend_from_slice(ours.as_bytes());
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn img4_passwd_keeps_the_images_users_and_gives_65532_to_us() {
        let image = b"root:x:0:0:root:/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/sh\n\
            taken:x:65532:65532::/:/bin/false\nbroken\nsalaam:x:7:7::/:/bin/false\n";
        let text = String::from_utf8(table(image, 7, "root", "salaam:x:65532:65532:s:/h:/bin/sh")).unwrap();
        assert_eq!(
            text,
            "root:x:0:0:root:/root:/bin/ash\nnode:x:1000:1000::/home/node:/bin/sh\n\
             salaam:x:65532:65532:s:/h:/bin/sh\n"
        );
        assert_eq!(table(b"", 4, "root:x:0:", "salaam:x:65532:"), b"root:x:0:\nsalaam:x:65532:\n");
    }
}
