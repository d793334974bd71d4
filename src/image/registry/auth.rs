//! What a registry asks for, and the header that answers it (RFC 9110, 11; distribution, "Token
//! authentication"). Pure; the asking is the session's.

use super::credentials::Login;
use super::endpoint::{Origin, encode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use hyper::header::HeaderValue;
use serde::Deserialize;

/// What a `WWW-Authenticate` header asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

/// The strongest of what the headers offer; `None` when nothing is known of them.
pub(super) fn challenge<'a>(headers: impl Iterator<Item = &'a HeaderValue>) -> Option<Challenge> {
    let mut basic = None;
    for header in headers.filter_map(|h| h.to_str().ok()) {
        for offer in http_auth::parse_challenges(header).unwrap_or_default() {
            let param = |name: &str| {
                let found = offer.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            if offer.scheme.eq_ignore_ascii_case("bearer")
                && let Some(realm) = param("realm")
            {
                return Some(Challenge::Bearer { realm, service: param("service") });
            }
            if offer.scheme.eq_ignore_ascii_case("basic") {
                basic = Some(Challenge::Basic);
            }
        }
    }
    basic
}

/// A request for a token: GET without a form, else POST of it.
#[derive(Debug)]
pub(super) struct TokenRequest {
    pub uri: Uri,
    pub authorization: Option<HeaderValue>,
    pub form: Option<String>,
}

/// What to ask the token server. The scope is ours, never the registry's: to pull from one repository.
///
/// # Errors
/// What is wrong with the realm: it must be HTTPS, or this machine if the registry is reached in plain.
pub(super) fn token_request(
    realm: &str,
    service: Option<&str>,
    repository: &str,
    login: Option<&Login>,
    plain_registry: bool,
) -> Result<TokenRequest, String> {
    let mut query = format!("scope={}", encode(&format!("repository:{repository}:pull")));
    if let Some(service) = service {
        query = format!("service={}&{query}", encode(service));
    }
    let parsed = |text: &str| -> Result<Uri, String> {
        let uri: Uri = text.parse().map_err(|_| "is not an address".to_owned())?;
        if Origin::of(&uri)?.plain && !plain_registry {
            return Err("is plain HTTP".to_owned());
        }
        Ok(uri)
    };
    if let Some(Login::Identity(token)) = login {
        let form = format!("grant_type=refresh_token&client_id=sal&{query}&refresh_token={}", encode(token));
        return Ok(TokenRequest { uri: parsed(realm)?, authorization: None, form: Some(form) });
    }
    let join = if realm.contains('?') { '&' } else { '?' };
    let authorization = login.and_then(basic);
    Ok(TokenRequest { uri: parsed(&format!("{realm}{join}{query}"))?, authorization, form: None })
}

/// The header of a login that is a user and a password.
pub(super) fn basic(login: &Login) -> Option<HeaderValue> {
    let Login::Password { user, secret } = login else { return None };
    header(&format!("Basic {}", STANDARD.encode(format!("{user}:{secret}"))))
}

/// The header of a token.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    header(&format!("Bearer {token}"))
}

fn header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// The header of the token in a token server's answer.
pub(super) fn token_of(answer: &[u8]) -> Option<HeaderValue> {
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    bearer(&answer.token.filter(|t| !t.is_empty()).or(answer.access_token)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[&str]) -> Option<Challenge> {
        let headers: Vec<_> = headers.iter().map(|h| HeaderValue::from_str(h).unwrap()).collect();
        challenge(headers.iter())
    }

    #[test]
    fn img3_challenges_are_read_and_the_token_preferred() {
        let bearer = |service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: "https://a.example/t".into(),
                service: service.map(str::to_owned),
            })
        };
        let full = r#"Bearer realm="https://a.example/t",service="r",scope="repository:x:pull,push""#;
        assert_eq!(asked(&[full]), bearer(Some("r")));
        assert_eq!(asked(&["Basic realm=\"x\"", r#"bearer Realm="https://a.example/t""#]), bearer(None));
        assert_eq!(asked(&["Basic realm=\"x\""]), Some(Challenge::Basic));
        for none in ["", "Negotiate", "Bearer service=\"r\"", "\"", "Bearer realm=\"x"] {
            assert_eq!(asked(&[none]), None, "{none}");
        }
    }

    #[test]
    fn img3_a_token_is_asked_for_one_repository_and_never_in_plain_elsewhere() {
        let login = Login::Password { user: "me".into(), secret: "pw".into() };
        let ask = |realm, login, plain| token_request(realm, Some("r s"), "a/b", login, plain);
        let request = ask("https://t.example/x?y=1", Some(&login), false).unwrap();
        assert_eq!(
            request.uri.to_string(),
            "https://t.example/x?y=1&service=r%20s&scope=repository%3Aa%2Fb%3Apull"
        );
        assert_eq!(request.authorization.unwrap().to_str().unwrap(), "Basic bWU6cHc=");
        assert!(ask("https://t.example/x", None, false).unwrap().authorization.is_none());
        let identity = Login::Identity("i&d".into());
        let request = ask("https://t.example/x", Some(&identity), false).unwrap();
        assert_eq!(request.uri.to_string(), "https://t.example/x");
        assert!(request.form.unwrap().ends_with("&refresh_token=i%26d") && request.authorization.is_none());
        for realm in ["http://t.example/x", "http://127.0.0.1/x", "t", "", "https://u:p@t.example/"] {
            assert!(ask(realm, Some(&login), false).is_err(), "{realm}");
        }
        assert!(ask("http://127.0.0.1:1/x", None, true).is_ok());
        assert!(ask("http://t.example/x", None, true).is_err());
    }

    #[test]
    fn img3_tokens_are_taken_from_either_field_and_never_shown() {
        for answer in [r#"{"token":"t"}"#, r#"{"access_token":"t"}"#, r#"{"token":"","access_token":"t"}"#] {
            let header = token_of(answer.as_bytes()).unwrap();
            assert_eq!(header.to_str().unwrap(), "Bearer t");
            assert!(!format!("{header:?}").contains("Bearer t"));
        }
        for bad in ["", "{}", r#"{"token":"a\nb"}"#] {
            assert!(token_of(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
