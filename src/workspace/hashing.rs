//! Hashing the files of a walk. On a processor without SHA instructions, hashing is most of the time
//! of an observation, and one precedes every command; so large trees are hashed by several threads.

use crate::domain::digest::Digest;

/// Most threads; more gain little for trees that are bounded to a few MiB.
const THREADS: usize = 4;
/// Bytes that are not worth a thread: about as long to hash as a thread takes to start.
const SMALL: usize = 64 << 10;

/// Gives the digest of each content, in order.
pub(super) fn hash_all<T: AsRef<[u8]> + Sync>(contents: &[T]) -> Vec<Digest> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS));
    hash(contents, threads)
}

fn hash<T: AsRef<[u8]> + Sync>(contents: &[T], threads: usize) -> Vec<Digest> {
    let total: usize = contents.iter().map(|content| content.as_ref().len()).sum();
    if threads < 2 || total < SMALL || contents.len() < 2 {
        return contents.iter().map(|content| Digest::of(content.as_ref())).collect();
    }
    let mut bytes = 0;
    let middle = contents
        .iter()
        .position(|content| {
            bytes += content.as_ref().len();
            bytes >= total / 2
        })
        .map_or(1, |index| (index + 1).min(contents.len() - 1));
    let (front, back) = contents.split_at(middle);
    std::thread::scope(|scope| {
        let other = std::thread::Builder::new().spawn_scoped(scope, || hash(back, threads / 2));
        let mut digests = hash(front, threads - threads / 2);
        // Where no thread can be had, this one does the work of both.
        let rest = other.ok().and_then(|thread| thread.join().ok()).unwrap_or_else(|| hash(back, 1));
        digests.extend(rest);
        digests
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ws5_threads_give_the_same_digests_in_the_same_order() {
        let sizes = [0, 300_000, 1, 70_000, 0, 5, 262_144, 9];
        let contents: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, size)| vec![i as u8; *size]).collect();
        for upto in 0..=contents.len() {
            let want = hash(&contents[..upto], 1);
            for threads in 2..6 {
                assert_eq!(hash(&contents[..upto], threads), want);
            }
            assert_eq!(hash_all(&contents[..upto]), want);
        }
    }
}
