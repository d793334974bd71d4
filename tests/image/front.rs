//! A TCP relay in front of a registry that lets bytes through slowly, counts them, and can be severed.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Front {
    port: u16,
    sent: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Front {
    /// Relays to `port`; answers come at `rate` bytes a second and connection.
    pub fn slow(port: u16, rate: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let (sent, open) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Vec::new())));
        let front = Self { port: own, sent: Arc::clone(&sent), open: Arc::clone(&open) };
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Nobody there: the client sees its connection closed.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                open.lock().unwrap().push(client.try_clone().unwrap());
                let pairs = [(&client, &server), (&server, &client)];
                let [up, down] = pairs.map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()));
                let sent = Arc::clone(&sent);
                std::thread::spawn(move || relay(up, None));
                std::thread::spawn(move || relay(down, Some((&sent, rate))));
            }
        });
        front
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Bytes of answers so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Closes all connections.
    pub fn sever(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn relay((mut from, mut to): (TcpStream, TcpStream), metered: Option<(&AtomicU64, u64)>) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(n) = from.read(&mut chunk) {
        if n == 0 || to.write_all(&chunk[..n]).is_err() {
            break;
        }
        if let Some((sent, rate)) = metered {
            sent.fetch_add(n as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(n as u64 * 1_000_000 / rate));
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
