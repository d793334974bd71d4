//! TLS: a registry is believed by its certificate alone (IMG.3).

use crate::case::Case;
use crate::oci_layout::file;
use crate::pulling::reference;
use crate::registry::{Auth, Registry, free_port};
use std::path::Path;
use std::process::{Command, Output};

/// A key and a certificate for `name`, by which it vouches for itself.
fn certificate(dir: &Path, file: &str, name: &str) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"])
        .args(["-addext", &format!("subjectAltName={name}"), "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{file}.key"), "-out", &format!("{file}.pem")])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

#[test]
fn img3_tls_is_spoken_on_loopback_too_and_certificates_count() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let dir = case.tmp.path().join("registry");
    let mut open = Registry::start(&dir, &Auth::None);
    open.push("team/app", &layout.dir, &layout.manifest);
    open.kill();
    certificate(&dir, "right", "IP:127.0.0.1");
    certificate(&dir, "other", "DNS:registry.example");
    let pull = |registry: &Registry, bundle: &Path| -> Output {
        Command::new(env!("CARGO_BIN_EXE_sal"))
            .args(["image", "pull", &reference(&registry.host(), &layout.manifest).to_string()])
            .env_clear()
            .env("HOME", case.tmp.path())
            .env("SAL_IMAGE_STORE", case.store.dir())
            .env("SSL_CERT_FILE", bundle)
            .output()
            .unwrap()
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for (served, trusted, why) in [
        ("right", "other", "its certificate is not trusted"),
        ("other", "other", "its certificate is not trusted"),
        ("right", "none", "no CA certificate was found"),
        ("right", "right", ""),
    ] {
        let path = |end: &str| dir.join(format!("{served}.{end}")).display().to_string();
        let tls = format!("  tls: {{certificate: {}, key: {}}}\n", path("pem"), path("key"));
        let registry = Registry::start_with(&dir, &Auth::None, free_port(), &tls);
        let pulled = pull(&registry, &dir.join(format!("{trusted}.pem")));
        assert_eq!(pulled.status.success(), why.is_empty(), "{served} {trusted}: {}", said(&pulled));
        assert!(said(&pulled).contains(why), "{served} {trusted}: {}", said(&pulled));
        if !why.is_empty() {
            assert!(said(&pulled).contains("SSL_CERT_FILE"), "{}", said(&pulled));
            case.assert_nothing_visible();
        }
    }
}
