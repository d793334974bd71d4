//! Requests to one registry for one repository: login, redirects, and what its answers mean.

use super::super::error::{ImageError, printable};
use super::access::Patience;
use super::auth::{self, Challenge};
use super::credentials::{self, Login};
use super::endpoint::{Host, Origin, redirect};
use super::http::{Http, Trouble};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use hyper::{Request, Response, StatusCode, Uri};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Redirects in a row.
const HOPS: usize = 5;
/// Bytes of a token server's answer.
const TOKEN_BYTES: u64 = 256 * 1024;
/// Bytes that are read of an error's explanation.
const ERROR_BYTES: u64 = 8 * 1024;
/// The longest wait that a registry can ask for.
const RETRY_AFTER_MOST: Duration = Duration::from_secs(60);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// Below `/v2/<repository>/`.
    pub path: &'a str,
    pub accept: &'a str,
    /// First byte wanted; 0 asks for all.
    pub from: u64,
}

/// A registry, as it is asked for one repository. Shared by the threads of a pull.
pub(super) struct Session {
    host: Host,
    repository: String,
    logins: Vec<PathBuf>,
    patience: Patience,
    /// `https`, or `http` for a loopback registry that does not speak TLS.
    scheme: Mutex<&'static str>,
    login: Mutex<Option<Option<Login>>>,
    authorization: Mutex<Option<HeaderValue>>,
}

impl Session {
    pub fn new(host: Host, repository: &str, logins: &[PathBuf], patience: Patience) -> Self {
        Self {
            host,
            repository: repository.to_owned(),
            logins: logins.to_owned(),
            patience,
            scheme: Mutex::new("https"),
            login: Mutex::new(None),
            authorization: Mutex::new(None),
        }
    }

    pub fn host(&self) -> String {
        self.host.to_string()
    }

    /// An error of this registry.
    pub fn error(&self, problem: impl Into<String>, hint: &str) -> ImageError {
        ImageError::Registry { registry: self.host(), problem: problem.into(), hint: hint.to_owned() }
    }

    /// An attempt; an answer is 200, or else 206 or 416 if `from` is not 0.
    pub async fn get(&self, http: &Http, ask: Ask<'_>) -> Result<Response<Incoming>, Trouble> {
        let scheme = *lock(&self.scheme);
        match self.get_over(http, ask, scheme).await {
            Err(Trouble::NotTls) if scheme == "https" && self.host.is_loopback() => {
                *lock(&self.scheme) = "http";
                self.get_over(http, ask, "http").await
            }
            Err(Trouble::NotTls) => Err(Trouble::Final(self.error(
                "it does not speak TLS",
                "plain HTTP is only spoken with a registry on this machine; put TLS in front of this one",
            ))),
            other => other,
        }
        .map_err(|trouble| self.named(trouble))
    }

    async fn get_over(&self, http: &Http, ask: Ask<'_>, scheme: &str) -> Result<Response<Incoming>, Trouble> {
        let own = format!("{scheme}://{}/v2/{}/{}", self.host.address(), self.repository, ask.path);
        let mut uri: Uri =
            own.parse().map_err(|_| Trouble::Final(self.error("its name makes no address", "")))?;
        let home = self.origin(&uri)?;
        let (mut hops, mut renewed) = (0, false);
        loop {
            // A redirect to another host is followed with nothing in hand.
            let at_home = self.origin(&uri)? == home;
            let authorization = if at_home { lock(&self.authorization).clone() } else { None };
            let mut response = http.send(request(&uri, ask, authorization.as_ref())?).await?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && at_home && !renewed {
                renewed = true;
                let challenge = auth::challenge(response.headers().get_all("www-authenticate").iter());
                self.renew(http, challenge, authorization.as_ref(), home.plain).await?;
            } else if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                hops += 1;
                let to = response.headers().get(LOCATION).and_then(|l| l.to_str().ok()).unwrap_or_default();
                if hops > HOPS {
                    return Err(Trouble::Final(
                        self.error(format!("it redirects more than {HOPS} times"), ""),
                    ));
                }
                uri = redirect(&uri, to).map_err(|problem| {
                    let to = printable(to.split('?').next().unwrap_or_default());
                    Trouble::Final(
                        self.error(format!("it redirects to '{to}', which {problem}"), "ask its operator"),
                    )
                })?;
            } else if status == StatusCode::OK || (ask.from > 0 && matches!(status.as_u16(), 206 | 416)) {
                return Ok(response);
            } else {
                let wait = retry_after(&response);
                let said = http.read(response.body_mut(), ERROR_BYTES).await.unwrap_or_default();
                return Err(if at_home {
                    self.refused(ask, status, authorization.is_some(), wait, &said)
                } else {
                    // A signed address may have run out; the registry gives a new one.
                    Trouble::Passing(format!("the server that it redirects to answers {status}"), wait)
                });
            }
        }
    }

    fn origin(&self, uri: &Uri) -> Result<Origin, Trouble> {
        Origin::of(uri)
            .map_err(|problem| Trouble::Final(self.error(format!("the address {uri} {problem}"), "")))
    }

    /// Gets what the challenge asks for. Several threads may come; one of them goes.
    async fn renew(
        &self,
        http: &Http,
        challenge: Option<Challenge>,
        used: Option<&HeaderValue>,
        plain: bool,
    ) -> Result<(), Trouble> {
        if lock(&self.authorization).as_ref() != used {
            return Ok(());
        }
        let login = self.login()?;
        let refused = |problem: &str| {
            let hint = format!(
                "log in with `docker login {0}`, or name a file with a login for {0} in REGISTRY_AUTH_FILE",
                self.host
            );
            Trouble::Final(self.error(problem, &hint))
        };
        if let Some(Login::Bearer(token)) = &login {
            if used.is_some() {
                return Err(refused("it refuses the token of the login"));
            }
            let Some(header) = auth::bearer(token) else { return Err(refused("its token is no header")) };
            *lock(&self.authorization) = Some(header);
            return Ok(());
        }
        let header = match challenge {
            None => {
                return Err(refused(
                    "it asks for a login of a kind that is not known (neither Basic nor Bearer)",
                ));
            }
            Some(Challenge::Basic) => match login.as_ref().and_then(auth::basic) {
                Some(_) if used.is_some() => return Err(refused("it refuses the login")),
                Some(header) => header,
                None => return Err(refused("it asks for a user and a password, and none are known")),
            },
            Some(Challenge::Bearer { realm, service }) => {
                self.token(http, &realm, service.as_deref(), login.as_ref(), plain).await?
            }
        };
        *lock(&self.authorization) = Some(header);
        Ok(())
    }

    async fn token(
        &self,
        http: &Http,
        realm: &str,
        service: Option<&str>,
        login: Option<&Login>,
        plain: bool,
    ) -> Result<HeaderValue, Trouble> {
        let asked =
            auth::token_request(realm, service, &self.repository, login, plain).map_err(|problem| {
                let realm = printable(realm);
                Trouble::Final(
                    self.error(format!("it names the token server '{realm}', which {problem}"), ""),
                )
            })?;
        let server = asked.uri.authority().map_or_else(String::new, ToString::to_string);
        let mut request = Request::builder().uri(&asked.uri).header(USER_AGENT, AGENT);
        if let Some(header) = asked.authorization {
            request = request.header(AUTHORIZATION, header);
        }
        let request = match asked.form {
            Some(form) => request
                .method("POST")
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(Full::from(form)),
            None => request.body(Full::default()),
        }
        .map_err(|e| Trouble::Final(self.error(format!("cannot be asked ({e})"), "")))?;
        let mut response = http.send(request).await?;
        let (status, wait) = (response.status(), retry_after(&response));
        let answer = http.read(response.body_mut(), TOKEN_BYTES).await?;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Trouble::Passing(format!("the token server {server} answers {status}"), wait));
        }
        if status != StatusCode::OK {
            let who = if login.is_some() { "the login" } else { "an anonymous pull" };
            return Err(Trouble::Final(self.error(
                format!("the token server {server} refuses {who} for {} ({status})", self.repository),
                &format!("see that the name is right, and log in with `docker login {}`", self.host),
            )));
        }
        auth::token_of(&answer).filter(|_| answer.len() as u64 <= TOKEN_BYTES).ok_or_else(|| {
            Trouble::Final(self.error(format!("the token server {server} answers with no token"), ""))
        })
    }

    /// Looks the login up once; a helper is asked only when the registry asks.
    fn login(&self) -> Result<Option<Login>, Trouble> {
        let mut known = lock(&self.login);
        if known.is_none() {
            let (host, wait) = (self.host.to_string(), self.patience.helper);
            let found = credentials::find(&self.logins, &host, &self.repository, wait);
            *known = Some(found.map_err(Trouble::Final)?);
        }
        Ok(known.clone().flatten())
    }

    fn refused(
        &self,
        ask: Ask<'_>,
        status: StatusCode,
        known: bool,
        wait: Option<Duration>,
        said: &[u8],
    ) -> Trouble {
        let why = explained(said).map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("{}/{}", self.repository, ask.path);
        if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
            return Trouble::Passing(format!("it answers {status} for {what}{why}"), wait);
        }
        let (problem, hint) = match status.as_u16() {
            404 => (
                format!("it has no {what}{why}"),
                "see that the name and the digest are right: `docker buildx imagetools inspect NAME:TAG` shows a tag's",
            ),
            401 | 403 => (
                format!("it refuses {}{what} ({status}){why}", if known { "the login for " } else { "" }),
                "see that the login in ~/.docker/config.json or REGISTRY_AUTH_FILE may pull from there",
            ),
            _ => (format!("it answers {status} for {what}{why}"), "ask its operator"),
        };
        Trouble::Final(self.error(problem, hint))
    }

    /// Fills in who made an error.
    fn named(&self, trouble: Trouble) -> Trouble {
        match trouble {
            Trouble::Final(ImageError::Registry { registry, problem, hint }) if registry.is_empty() => {
                Trouble::Final(ImageError::Registry { registry: self.host(), problem, hint })
            }
            other => other,
        }
    }
}

const AGENT: &str = concat!("sal/", env!("CARGO_PKG_VERSION"));

fn request(
    uri: &Uri,
    ask: Ask<'_>,
    authorization: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>, Trouble> {
    let mut request = Request::builder().uri(uri).header(USER_AGENT, AGENT).header(ACCEPT, ask.accept);
    if let Some(header) = authorization {
        request = request.header(AUTHORIZATION, header);
    }
    if ask.from > 0 {
        request = request.header(RANGE, format!("bytes={}-", ask.from));
    }
    request.body(Full::default()).map_err(|e| Trouble::Passing(e.to_string(), None))
}

fn retry_after(response: &Response<Incoming>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MOST))
}

/// What an error's body says (distribution, "Errors").
fn explained(said: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(said).ok()?;
    let first = body.get("errors")?.get(0)?;
    let text = first.get("message").or_else(|| first.get("code"))?.as_str()?;
    Some(printable(text))
}

/// No code that holds these locks panics.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
