//! Who a request comes from, by what browsers must tell: Host and Origin.
//!
//! Host keeps a public name that was made to point at 127.0.0.1 from reaching us (DNS rebinding);
//! Origin tells our own page from all others.

use std::net::SocketAddr;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};

/// The names of our own page.
#[derive(Clone, Debug)]
pub struct OwnNames([String; 2]);

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Not from a page: browsers send an origin with every POST and WebSocket.
    None,
    /// Our own page.
    Own,
    /// Any other page, sandboxed ones and files ("null") included.
    Foreign,
}

impl OwnNames {
    /// The names of a page served at a loopback address.
    pub fn new(address: SocketAddr) -> Self {
        Self([address.to_string(), format!("localhost:{}", address.port())])
    }

    /// Whether the request was sent to us by one of our names.
    pub fn is_host(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.has(host)) && hosts.next().is_none()
    }

    /// Where the request comes from.
    pub fn origin(&self, headers: &HeaderMap) -> Origin {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Origin::None;
        };
        let name = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        if name.is_some_and(|name| self.has(name)) && origins.next().is_none() {
            Origin::Own
        } else {
            Origin::Foreign
        }
    }

    fn has(&self, name: &str) -> bool {
        // Port 80 is left out of names.
        self.0.iter().any(|own| {
            own.eq_ignore_ascii_case(name)
                || own.strip_suffix(":80").is_some_and(|own| own.eq_ignore_ascii_case(name))
        })
    }
}

/// The word in `Authorization: Bearer WORD`.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, word) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(word.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn only_our_own_names_are_hosts() {
        let own = OwnNames::new("127.0.0.1:8787".parse().unwrap());
        let ask = |values: &[&str]| own.is_host(&headers(&HOST, values));
        assert!(ask(&["127.0.0.1:8787"]) && ask(&["localhost:8787"]) && ask(&["LocalHost:8787"]));
        for other in ["127.0.0.1", "127.0.0.1:8788", "evil.example:8787", "localhost:8787.evil.example", ""] {
            assert!(!ask(&[other]), "{other:?}");
        }
        assert!(!ask(&[]) && !ask(&["localhost:8787", "evil.example"]));
        let own = OwnNames::new("[::1]:80".parse().unwrap());
        assert!(own.is_host(&headers(&HOST, &["[::1]"])) && own.is_host(&headers(&HOST, &["localhost:80"])));
    }

    #[test]
    fn origins_are_own_foreign_or_none() {
        let own = OwnNames::new("127.0.0.1:8787".parse().unwrap());
        let ask = |values: &[&str]| own.origin(&headers(&ORIGIN, values));
        assert_eq!(ask(&[]), Origin::None);
        assert_eq!(ask(&["http://127.0.0.1:8787"]), Origin::Own);
        assert_eq!(ask(&["http://localhost:8787"]), Origin::Own);
        for other in ["null", "", "http://localhost:3000", "https://localhost:8787", "http://localhost:8787/"]
        {
            assert_eq!(ask(&[other]), Origin::Foreign, "{other:?}");
        }
        assert_eq!(ask(&["http://localhost:8787", "https://evil.example"]), Origin::Foreign);
    }

    #[test]
    fn bearer_takes_the_word() {
        let ask = |value| bearer(&headers(&AUTHORIZATION, &[value])).map(str::to_owned);
        assert_eq!(ask("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(ask("bearer  abc ").as_deref(), Some("abc"));
        assert_eq!(ask("Basic abc"), None);
        assert_eq!(ask("Bearer"), None);
    }
}
