//! Hosts, addresses and redirects: who may be asked, over what, and who is shown credentials.

use super::super::reference::is_domain;
use hyper::Uri;
use std::net::IpAddr;

/// Docker Hub's registry answers at another name than its images bear (distribution/reference).
const HUB: &str = "docker.io";
const HUB_REGISTRY: &str = "registry-1.docker.io";

/// `HOST` or `HOST:PORT` of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host(String);

/// A text that is no [`Host`].
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not a registry: write HOST or HOST:PORT, without https:// and without a path")]
pub struct BadHost(String);

impl std::str::FromStr for Host {
    type Err = BadHost;
    fn from_str(text: &str) -> Result<Self, BadHost> {
        let shown =
            || BadHost(text.chars().take(100).map(|c| if c.is_control() { '?' } else { c }).collect());
        is_domain(text).map(|()| Self(text.to_owned())).map_err(|_| shown())
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Host {
    /// Of the images whose names start with `domain`.
    pub(super) fn of_domain(domain: &str) -> Self {
        Self(domain.to_owned())
    }

    /// Where its registry answers.
    pub(super) fn address(&self) -> &str {
        if self.0 == HUB { HUB_REGISTRY } else { &self.0 }
    }

    /// Whether it is this very machine, so that plain HTTP stays on it.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.0.rsplit_once(':').map_or(self.0.as_str(), |(host, _)| host);
        is_loopback(host)
    }
}

/// True for `localhost` and addresses of the loopback interface (RFC 6761, 6.3; RFC 1122, 3.2.1.3).
pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Scheme, host and port: who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub plain: bool,
    host: String,
    port: u16,
}

impl Origin {
    /// That of an absolute URI.
    ///
    /// # Errors
    /// What is wrong with it: another scheme, or plain HTTP to another machine.
    pub fn of(uri: &Uri) -> Result<Self, String> {
        let host = uri.host().ok_or("names no host")?.to_ascii_lowercase();
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err("holds a user name or a password".to_owned());
        }
        let plain = match uri.scheme_str() {
            Some("https") => false,
            Some("http") if is_loopback(&host) => true,
            Some("http") => return Err("is plain HTTP, which is only spoken with this machine".to_owned()),
            _ => return Err("is not HTTPS".to_owned()),
        };
        let port = uri.port_u16().unwrap_or(if plain { 80 } else { 443 });
        Ok(Self { plain, host, port })
    }
}

/// Where a redirect at `from` leads (RFC 9110, 10.2.2): an absolute URI or an absolute path.
///
/// # Errors
/// What is wrong with it. From HTTPS nothing leads to plain HTTP, not even on this machine.
pub(super) fn redirect(from: &Uri, location: &str) -> Result<Uri, String> {
    let absolute = if location.starts_with('/') && !location.starts_with("//") {
        let authority = from.authority().map_or("", |a| a.as_str());
        format!("{}://{authority}{location}", from.scheme_str().unwrap_or("https"))
    } else {
        location.split('#').next().unwrap_or_default().to_owned()
    };
    let to: Uri = absolute.parse().map_err(|_| "is not an absolute address".to_owned())?;
    let (before, after) = (Origin::of(from)?, Origin::of(&to)?);
    if after.plain && !before.plain { Err("leads from HTTPS to plain HTTP".to_owned()) } else { Ok(to) }
}

/// Encodes a value of a query or a form (RFC 3986, 2.1): all but the unreserved characters.
pub(super) fn encode(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn img1_a_host_is_a_name_and_perhaps_a_port() {
        for good in ["mirror.example", "127.0.0.1:5000", "localhost:5000", "a-b.c"] {
            assert_eq!(good.parse::<Host>().unwrap().to_string(), good);
        }
        for bad in ["", "https://x", "x/y", "user@x", "x:99999", "x y", "x\u{1b}[2J"] {
            let error = bad.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT") && !error.contains('\u{1b}'), "{bad}: {error}");
        }
        assert_eq!(Host::of_domain("docker.io").address(), "registry-1.docker.io");
    }

    #[test]
    fn img3_plain_http_is_for_loopback_alone() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
            assert!(Origin::of(&uri(&format!("http://{host}:5000/v2/"))).unwrap().plain);
        }
        for host in ["example.org", "10.0.0.1", "0.0.0.0", "127.0.0.1.example.org", "localhost.example.org"] {
            assert!(!is_loopback(host), "{host}");
            assert!(Origin::of(&uri(&format!("http://{host}/v2/"))).is_err());
            assert!(!Origin::of(&uri(&format!("https://{host}/v2/"))).unwrap().plain);
        }
        for bad in ["ftp://example.org/", "/v2/", "https://me:secret@example.org/"] {
            assert!(Origin::of(&uri(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn img3_origins_differ_by_scheme_host_and_port() {
        let of = |text| Origin::of(&uri(text)).unwrap();
        assert_eq!(of("https://a.example/v2/"), of("https://A.example:443/other"));
        assert_ne!(of("https://a.example/"), of("https://b.example/"));
        assert_ne!(of("https://a.example/"), of("https://a.example:8443/"));
        assert_ne!(of("https://localhost/"), of("http://localhost:443/"));
    }

    #[test]
    fn img3_redirects_never_fall_to_plain_http() {
        let (tls, plain) = (uri("https://a.example/v2/x"), uri("http://127.0.0.1:5000/v2/x"));
        for (from, location, to) in [
            (&tls, "https://cdn.example/blob?sig=1#part", "https://cdn.example/blob?sig=1"),
            (&tls, "/other", "https://a.example/other"),
            (&plain, "http://127.0.0.1:6000/b", "http://127.0.0.1:6000/b"),
            (&plain, "https://cdn.example/b", "https://cdn.example/b"),
        ] {
            assert_eq!(redirect(from, location).unwrap().to_string(), to);
        }
        for location in
            ["http://cdn.example/b", "http://localhost/b", "//cdn.example/b", "b", "", "file:///etc/passwd"]
        {
            assert!(redirect(&tls, location).is_err(), "{location}");
        }
        assert!(redirect(&plain, "http://cdn.example/b").is_err());
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(encode("repository:a/b-c:pull"), "repository%3Aa%2Fb-c%3Apull");
        assert_eq!(encode("ő&="), "%C5%91%26%3D");
    }
}
