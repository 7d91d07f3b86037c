//! What a GitHub App's token may say, and what it is good for
//! (<https://docs.github.com/en/apps/creating-github-apps/authenticating-with-a-github-app>). Pure.

use http::Method;

use super::claims::{self, ClaimError};
use super::unique::Members;

/// Ten minutes, in seconds.
const LONGEST: i64 = 600;

const KNOWN: [&str; 5] = ["iss", "iat", "exp", "nbf", "jti"];

/// A request with the token of an App.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asks {
    /// About the App, or which installation is whose.
    About,
    /// For the token of an installation.
    Token,
}

pub(super) fn check(claims: &Members, ids: &[String], now: i64) -> Result<(), ClaimError> {
    claims::only(claims, &KNOWN)?;
    if !claims::issuer(claims).is_some_and(|issuer| ids.contains(&issuer)) {
        return Err(ClaimError::Wrong("iss"));
    }
    claims::times(claims, now, LONGEST)
}

/// An error is why not. On a server of one's own all is below `/api/v3`.
pub(super) fn asks(method: &Method, path: &str, installations: &[u64]) -> Result<Asks, String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/');
    let path = path.strip_prefix("/api/v3").unwrap_or(path);
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    if !path.bytes().all(plain) || segments.iter().any(|segment| matches!(*segment, "" | "." | "..")) {
        return Err(
            "its path must be written plainly: letters, digits, `-`, `_`, `.`, without an empty segment"
                .to_owned(),
        );
    }
    let of = |id: &str| {
        // One number is written in one way.
        let number: Option<u64> = id.parse().ok().filter(|number: &u64| number.to_string() == id);
        match number {
            None => Err("the number of the installation must be written plainly".to_owned()),
            Some(number) if !installations.is_empty() && !installations.contains(&number) => {
                let all: Vec<String> = installations.iter().map(u64::to_string).collect();
                Err(format!(
                    "it is for installations {}; for {number}, add that to `installations`",
                    all.join(", ")
                ))
            }
            Some(_) => Ok(()),
        }
    };
    match segments.as_slice() {
        ["app", "installations", id, "access_tokens"] if *method == Method::POST => of(id).map(|()| Asks::Token),
        ["app", "installations", id, ..] => of(id).map(|()| Asks::About),
        ["app", ..] | ["repos", _, _, "installation"] | ["orgs" | "users" | "enterprises", _, "installation"] => Ok(Asks::About),
        _ => Err("the token of an App is for `/app` and what is below it, and for `…/installation`; elsewhere, use an installation's".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whose_it_is_and_no_more() {
        let (now, ids) = (1_800_000_000, ["12345".to_owned(), "Iv23liABC".to_owned()]);
        let checked = |text: &str| check(&Members::parse(text.as_bytes()).unwrap(), &ids, now);
        for fine in ["12345", "\"12345\"", "\"Iv23liABC\""] {
            let claims = format!("{{\"iss\":{fine},\"iat\":1799999940,\"exp\":1800000540}}");
            assert_eq!(checked(&claims), Ok(()), "{claims}");
        }
        for (claims, error) in [
            (r#"{"iss":1234,"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":12345.0,"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":["12345"],"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iat":1800000000,"exp":1800000540}"#, ClaimError::Wrong("iss")),
            (r#"{"iss":12345,"iat":1800000000,"exp":1800003600}"#, ClaimError::Long(10)),
            (r#"{"iss":12345,"iat":1800000000,"exp":1800000540,"x":1}"#, ClaimError::Unknown("x".to_owned())),
        ] {
            assert_eq!(checked(claims), Err(error), "{claims}");
        }
    }

    #[test]
    fn it_is_for_the_app_and_its_installations() {
        let asked = |method: Method, path: &str, installations: &[u64]| asks(&method, path, installations);
        for (path, asks) in [
            ("/app", Asks::About),
            ("/app/installations", Asks::About),
            ("/app/installations/7/access_tokens", Asks::Token),
            ("/api/v3/app/installations/7/access_tokens", Asks::Token),
            ("/repos/o/r.s/installation", Asks::About),
            ("/orgs/o/installation", Asks::About),
        ] {
            assert_eq!(asked(Method::POST, path, &[7]), Ok(asks), "{path}");
        }
        assert_eq!(asked(Method::GET, "/app/installations/7/access_tokens", &[]), Ok(Asks::About));
        for path in [
            "/app/installations/8/access_tokens",
            "/app/installations/8",
            "/app/installations/07/access_tokens",
            "/app/installations/+7/access_tokens",
            "/app/installations/7/access_tokens/",
            "/app/installations/7/%61ccess_tokens",
            "/app//installations/7",
            "/app/../user",
            "/user",
            "/repos/o/r",
            "/graphql",
            "/application",
            "/",
        ] {
            assert!(asked(Method::POST, path, &[7]).is_err(), "{path}");
        }
    }
}
