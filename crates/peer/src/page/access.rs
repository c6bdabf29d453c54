//! Who may see a page.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::ServerError;
use crate::keys::write_secret;

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// It names another host: a page of another site whose name was made to point here.
    Host,
    /// It has no token, or a wrong one.
    Token,
}

/// Who may ask.
#[derive(Debug)]
pub enum Access {
    /// Everybody who reaches the port.
    Anybody,
    /// Whoever is on this machine, and asks under its own name.
    Local,
    /// Whoever knows the token.
    Token(String),
}

impl Access {
    /// For what is not secret.
    pub fn anybody() -> Self {
        Self::Anybody
    }

    /// For a page at an address.
    pub fn of(address: SocketAddr, token: Option<&Path>) -> Result<Self, ServerError> {
        match token {
            Some(path) => Ok(Self::Token(read_token(path)?)),
            None if address.ip().is_loopback() => Ok(Self::Local),
            None => Err(ServerError::Open { address }),
        }
    }

    /// What the page's address ends with.
    pub fn query(&self) -> String {
        match self {
            Self::Token(token) => format!("?token={token}"),
            _ => String::new(),
        }
    }

    /// Whether a request is answered, by its host and its query.
    pub fn check(&self, host: Option<&str>, query: Option<&str>, port: u16) -> Result<(), Refused> {
        match self {
            Self::Anybody => Ok(()),
            Self::Local => host.is_some_and(|host| is_here(host, port)).then_some(()).ok_or(Refused::Host),
            Self::Token(token) => {
                let given = query.into_iter().flat_map(|q| q.split('&')).find_map(|pair| pair.strip_prefix("token="));
                // Hashes are compared in a time that does not depend on where they differ.
                let is_it = given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(token.as_bytes()));
                is_it.then_some(()).ok_or(Refused::Token)
            }
        }
    }
}

/// Whether a host, with or without the port, is a name of this machine that nobody else can give to another.
fn is_here(host: &str, port: u16) -> bool {
    let name = host.strip_suffix(&format!(":{port}")).unwrap_or(host);
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The fewest characters that nobody guesses.
const SHORTEST: usize = 16;

/// The token in a file, which is made if there is none.
fn read_token(path: &Path) -> Result<String, ServerError> {
    let failed = |source| ServerError::TokenFile { path: path.into(), source };
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|found| !found.is_file()) {
        return Err(failed(std::io::Error::other("it is not a file")));
    }
    #[cfg(unix)]
    if found.is_ok_and(|found| std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077 != 0) {
        return Err(ServerError::ExposedToken { path: path.into() });
    }
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let token = text.trim();
            let is_plain = token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b));
            match token.len() >= SHORTEST && is_plain {
                true => Ok(token.into()),
                false => Err(ServerError::Token { path: path.into() }),
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let mut bytes = [0; 16];
            getrandom::fill(&mut bytes).map_err(|e| failed(e.into()))?;
            let token = hex::encode(bytes);
            write_secret(path, &token).map_err(failed)?;
            Ok(token)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_pages_are_served_under_local_names_only() {
        let local = Access::of("127.0.0.1:8470".parse().unwrap(), None).unwrap();
        for host in [
            "localhost",
            "localhost:8470",
            "LocalHost:8470",
            "127.0.0.1:8470",
            "127.0.0.1",
            "[::1]:8470",
            "127.1.2.3:8470",
        ] {
            assert_eq!(local.check(Some(host), None, 8470), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8470",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:8470",
            "localhost:80",
            "",
        ] {
            assert_eq!(local.check(Some(host), None, 8470), Err(Refused::Host), "{host}");
        }
        assert_eq!(local.check(None, None, 8470), Err(Refused::Host));
    }

    #[test]
    fn others_need_the_token() {
        let everywhere = "0.0.0.0:8470".parse().unwrap();
        assert!(matches!(Access::of(everywhere, None), Err(ServerError::Open { .. })));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let access = Access::of(everywhere, Some(&path)).unwrap();
        let token = std::fs::read_to_string(&path).unwrap();
        let token = token.trim();
        assert_eq!(access.query(), format!("?token={token}"));
        assert_eq!(access.check(Some("any.example"), Some(&format!("a=b&token={token}")), 8470), Ok(()));
        for query in [None, Some(""), Some("token="), Some("token=1234567890123456"), Some(token)] {
            assert_eq!(access.check(Some("localhost"), query, 8470), Err(Refused::Token), "{query:?}");
        }
        // The same file gives the same token, so that a bookmark lasts.
        assert_eq!(Access::of(everywhere, Some(&path)).unwrap().query(), access.query());
        std::fs::write(&path, "short").unwrap();
        assert!(matches!(Access::of(everywhere, Some(&path)), Err(ServerError::Token { .. })));
    }

    #[cfg(unix)]
    #[test]
    fn the_token_is_readable_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        Access::of("0.0.0.0:1".parse().unwrap(), Some(&path)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(Access::of("0.0.0.0:1".parse().unwrap(), Some(&path)), Err(ServerError::ExposedToken { .. })));
        let folder = folder.path();
        assert!(matches!(Access::of("0.0.0.0:1".parse().unwrap(), Some(folder)), Err(ServerError::TokenFile { .. })));
    }
}
