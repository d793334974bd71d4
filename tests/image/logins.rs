//! Logins: anonymous, basic, tokens from a real token server, files and credential helpers (IMG.3).

use crate::case::Case;
use crate::fake::{Fake, Reply, Request};
use crate::oci_layout::{LayoutDir, file};
use crate::pulling::{quick, reference};
use crate::registry::{Auth, Registry};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use salaam::image::Access;
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// `htpasswd -nbB sal pull-secret`
const HTPASSWD: &str = "sal:$2y$05$aPBsK2TFM0Rg2cgDWRaLTes.u.gu35Vrim1soE3UctDObjut4JLt.\n";

/// A registry that wants a login, with the layout's image in it.
fn locked(case: &Case, auth: &Auth) -> (Registry, LayoutDir) {
    let layout = case.two_layers(vec![file("a", "1")]);
    let dir = case.tmp.path().join("registry");
    let mut open = Registry::start(&dir, &Auth::None);
    open.push("team/app", &layout.dir, &layout.manifest);
    open.kill();
    (Registry::start(&dir, auth), layout)
}

fn login_file(case: &Case, host: &str, user: &str, secret: &str) -> PathBuf {
    let path = case.tmp.path().join("config.json");
    let auth = STANDARD.encode(format!("{user}:{secret}"));
    std::fs::write(&path, json!({"auths": {host: {"auth": auth}}}).to_string()).unwrap();
    path
}

fn with(login: PathBuf) -> Access {
    Access { logins: vec![login], ..quick() }
}

#[test]
fn img3_basic_the_right_login_pulls_none_or_a_wrong_one_is_refused() {
    let case = Case::new();
    let (registry, layout) = locked(&case, &Auth::Basic(HTPASSWD));
    let refusal = case.pull(&registry.host(), &layout.manifest).unwrap_err().refusal();
    assert!(refusal.message.contains("asks for a user and a password"), "{}", refusal.message);
    assert!(refusal.hint.contains(&format!("docker login {}", registry.host())), "{}", refusal.hint);
    let wrong = with(login_file(&case, &registry.host(), "sal", "wrong-secret"));
    let error = case.pull_with(&registry.host(), &layout.manifest, &wrong).unwrap_err();
    assert!(error.to_string().contains("refuses the login"), "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong-secret"));
    // A login for another registry is not shown to this one.
    let other = with(login_file(&case, "other.example", "sal", "pull-secret"));
    assert!(case.pull_with(&registry.host(), &layout.manifest, &other).is_err());
    case.assert_nothing_visible();
    let right = with(login_file(&case, &registry.host(), "sal", "pull-secret"));
    case.pull_with(&registry.host(), &layout.manifest, &right).unwrap();
}

/// A token server as the registry wants it: it signs what it was asked for with a key of its own.
struct Tokens {
    dir: PathBuf,
}

impl Tokens {
    fn make(dir: &Path) -> Self {
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=the-issuer"])
            .args(["-keyout", "key.pem", "-out", "cert.pem"])
            .current_dir(dir)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { dir: dir.to_owned() }
    }

    fn sign(&self, access: &Value, seconds: u64) -> String {
        let pem = std::fs::read_to_string(self.dir.join("cert.pem")).unwrap();
        let der: String = pem.lines().filter(|line| !line.starts_with("---")).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = json!({"typ": "JWT", "alg": "RS256", "x5c": [der]});
        let claims = json!({"iss": "the-issuer", "sub": "sal", "aud": "the-registry", "exp": now + seconds,
            "nbf": now - 10, "iat": now, "jti": "1", "access": access});
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let mut signer = Command::new("openssl")
            .args(["dgst", "-sha256", "-sign", "key.pem"])
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        signer.stdin.take().unwrap().write_all(signed.as_bytes()).unwrap();
        let signature = signer.wait_with_output().unwrap().stdout;
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Answers as a token server that knows one user, and a pull by nobody else.
fn token_reply(tokens: &Tokens, request: &Request) -> Reply {
    let expected = "service=the-registry&scope=repository%3Ateam%2Fapp%3Apull";
    let basic = format!("Basic {}", STANDARD.encode("sal:pull-secret"));
    let by_password = request.method == "GET"
        && request.path.ends_with(expected)
        && request.header("authorization") == Some(basic);
    let by_refresh = request.method == "POST"
        && request.body.contains("grant_type=refresh_token")
        && request.body.contains(expected)
        && request.body.ends_with("refresh_token=refresh-secret")
        && request.header("authorization").is_none();
    if !by_password && !by_refresh {
        return Reply::new(401, r#"{"details":"incorrect username or password"}"#);
    }
    let access = json!([{"type": "repository", "name": "team/app", "actions": ["pull"]}]);
    let token = tokens.sign(&access, 300);
    let field = if by_password { "token" } else { "access_token" };
    Reply::new(200, json!({field: token, "expires_in": 300}).to_string())
}

#[test]
fn img3_tokens_a_real_registry_takes_the_token_server_s_word() {
    let case = Case::new();
    let keys = case.tmp.path().join("keys");
    std::fs::create_dir(&keys).unwrap();
    let tokens = Tokens::make(&keys);
    let server = Fake::serve(move |request| token_reply(&tokens, request));
    let realm = format!("http://{}/token", server.host());
    let auth = Auth::Token { realm, certificate: keys.join("cert.pem") };
    let (registry, layout) = locked(&case, &auth);
    let error = case.pull_refused(&registry.host(), &layout.manifest);
    assert!(error.contains("refuses an anonymous pull") && error.contains("team/app"), "{error}");
    let wrong = with(login_file(&case, &registry.host(), "sal", "wrong-secret"));
    let error = case.pull_with(&registry.host(), &layout.manifest, &wrong).unwrap_err().to_string();
    assert!(error.contains("refuses the login"), "{error}");
    case.assert_nothing_visible();

    let asked = server.seen().len();
    let right = with(login_file(&case, &registry.host(), "sal", "pull-secret"));
    case.pull_with(&registry.host(), &layout.manifest, &right).unwrap();
    assert_eq!(server.seen().len(), asked + 1, "one token serves manifest, configuration and layers");

    let second = Case::new();
    let path = second.tmp.path().join("identity.json");
    let login = json!({"auths": {registry.host(): {"identitytoken": "refresh-secret"}}});
    std::fs::write(&path, login.to_string()).unwrap();
    second.pull_with(&registry.host(), &layout.manifest, &with(path)).unwrap();
}

#[test]
fn img3_a_token_that_runs_out_in_mid_pull_is_renewed() {
    let case = Case::new();
    let layout = case.two_layers(vec![file("a", "1")]);
    let tokens = Fake::serve(|request| {
        let n = request.header("x-none").map_or(0, |n| n.len());
        Reply::new(200, json!({"token": format!("t{n}")}).to_string())
    });
    let realm = format!("http://{}/token", tokens.host());
    // Each token is good for two requests.
    let used = std::sync::Mutex::new(0);
    let registry = Fake::of_layout(&layout.dir, move |request| {
        let mut used = used.lock().unwrap();
        *used += 1;
        (request.header("authorization").is_none() || *used % 3 == 0).then(|| {
            Reply::new(401, "").with("WWW-Authenticate", format!("Bearer realm=\"{realm}\",service=\"s\""))
        })
    });
    let path = login_file(&case, &registry.host(), "sal", "x");
    case.pull_with(&registry.host(), &layout.manifest, &with(path)).unwrap();
    assert!(tokens.seen().len() >= 2, "{}", tokens.seen().len());
}

#[test]
fn img3_a_token_server_in_plain_elsewhere_or_without_sense_is_refused() {
    for (realm, why) in [
        ("http://192.0.2.1/token", "plain HTTP"),
        ("ftp://127.0.0.1/", "not HTTPS"),
        ("nonsense", "token server"),
    ] {
        let case = Case::new();
        let layout = case.two_layers(vec![]);
        let registry = Fake::of_layout(&layout.dir, move |_| {
            Some(Reply::new(401, "").with("WWW-Authenticate", format!("Bearer realm=\"{realm}\"")))
        });
        let path = login_file(&case, &registry.host(), "sal", "pull-secret");
        let error = case.pull_with(&registry.host(), &layout.manifest, &with(path)).unwrap_err().to_string();
        assert!(error.contains(why), "{realm}: {error}");
    }
    for answer in [Reply::new(200, "{}"), Reply::new(200, vec![b' '; 300_000]), Reply::new(302, "")] {
        let case = Case::new();
        let layout = case.two_layers(vec![]);
        let answer = std::sync::Mutex::new(Some(answer));
        let tokens = Fake::serve(move |_| {
            answer.lock().unwrap().take().unwrap_or_else(|| Reply::new(200, "{}")).with("Location", "/else")
        });
        let realm = format!("http://{}/t", tokens.host());
        let registry = Fake::of_layout(&layout.dir, move |_| {
            Some(Reply::new(401, "").with("WWW-Authenticate", format!("Bearer realm=\"{realm}\"")))
        });
        let error = case.pull_refused(&registry.host(), &layout.manifest);
        assert!(error.contains("token server"), "{error}");
        assert_eq!(tokens.seen().len(), 1, "its redirects are not followed");
    }
}

/// `sal image pull` with an environment of its own.
fn sal(case: &Case, environment: &[(&str, &Path)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sal"));
    command.args(["image", "pull"]).args(arguments).env_clear().env("HOME", case.tmp.path());
    command.env("SAL_IMAGE_STORE", case.store.dir()).envs(environment.iter().copied());
    command.output().unwrap()
}

/// A credential helper `name` in the case's `bin/`.
fn helper(case: &Case, name: &str, script: &str) {
    let bin = case.tmp.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let path = bin.join(format!("docker-credential-{name}"));
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn img3_logins_come_from_docker_s_file_the_auth_file_and_helpers() {
    let case = Case::new();
    let (registry, layout) = locked(&case, &Auth::Basic(HTPASSWD));
    let host = registry.host();
    let named = reference(&host, &layout.manifest).to_string();
    let docker = case.tmp.path().join("docker");
    std::fs::create_dir(&docker).unwrap();
    let write = |dir: &Path, name: &str, content: Value| {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join(name), content.to_string()).unwrap();
    };
    let login = json!({"auths": {host.as_str(): {"auth": STANDARD.encode("sal:pull-secret")}}});
    let nowhere = PathBuf::from("/nonexistent");
    let bin = PathBuf::from(format!("{}:/usr/bin:/bin", case.tmp.path().join("bin").display()));
    // The helper answers this registry alone, told by its standard input.
    helper(
        &case,
        "good",
        &format!(
            "[ \"$1\" = get ] || exit 9\nread server\n[ \"$server\" = {host} ] || {{ echo 'credentials not found in native keychain'; exit 1; }}\n\
             echo '{{\"ServerURL\":\"{host}\",\"Username\":\"sal\",\"Secret\":\"pull-secret\"}}'"
        ),
    );
    helper(&case, "none", "cat >/dev/null; echo 'credentials not found in native keychain'; exit 1");
    let remove = || case.store.remove(&reference(&host, &layout.manifest)).unwrap();
    write(&case.tmp.path().join(".docker"), "config.json", login.clone());
    assert!(sal(&case, &[], &[&named]).status.success(), "HOME");
    remove();
    assert!(
        !sal(&case, &[("DOCKER_CONFIG", &docker)], &[&named]).status.success(),
        "DOCKER_CONFIG replaces it"
    );
    write(&docker, "config.json", login.clone());
    assert!(sal(&case, &[("DOCKER_CONFIG", &docker)], &[&named]).status.success(), "DOCKER_CONFIG");
    remove();
    write(&docker, "auth.json", login);
    let auth_file = docker.join("auth.json");
    let environment = [("DOCKER_CONFIG", nowhere.as_path()), ("REGISTRY_AUTH_FILE", &auth_file)];
    assert!(sal(&case, &environment, &[&named]).status.success(), "REGISTRY_AUTH_FILE");
    remove();
    for config in [
        json!({"credHelpers": {host.as_str(): "good"}, "credsStore": "none"}),
        json!({"credHelpers": {"other.example": "none"}, "credsStore": "good", "auths": {host.as_str(): {}}}),
    ] {
        write(&docker, "config.json", config);
        let pulled = sal(&case, &[("DOCKER_CONFIG", &docker), ("PATH", &bin)], &[&named]);
        assert!(pulled.status.success(), "{}", String::from_utf8_lossy(&pulled.stderr));
        remove();
    }
    write(&docker, "config.json", json!({"credsStore": "none"}));
    let unknown = sal(&case, &[("DOCKER_CONFIG", &docker), ("PATH", &bin)], &[&named]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("none are known"));
}

#[test]
fn img3_a_helper_that_fails_hangs_or_floods_is_ended_and_named() {
    let case = Case::new();
    let (registry, layout) = locked(&case, &Auth::Basic(HTPASSWD));
    let named = reference(&registry.host(), &layout.manifest).to_string();
    let bin = PathBuf::from(format!("{}:/usr/bin:/bin", case.tmp.path().join("bin").display()));
    helper(&case, "fails", "printf 'the keychain is locked\\033[2J'; exit 3");
    helper(&case, "floods", "yes");
    helper(&case, "babbles", "echo no json");
    for (name, why) in [
        ("fails", "the keychain is locked"),
        ("floods", "more than 65536 bytes"),
        ("babbles", "not its JSON"),
        ("absent", "is it in PATH"),
        ("../../bin/sh", "not the name of a program"),
    ] {
        let config = json!({"credHelpers": {registry.host(): name}});
        std::fs::write(case.tmp.path().join("config.json"), config.to_string()).unwrap();
        let begin = Instant::now();
        let refused = sal(&case, &[("DOCKER_CONFIG", case.tmp.path()), ("PATH", &bin)], &[&named]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && said.contains(why) && !said.contains('\u{1b}'),
            "{name}: {said}"
        );
        assert!(begin.elapsed() < Duration::from_secs(10), "{name}");
    }
}
