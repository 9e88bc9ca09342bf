//! The secret that pages of other origins must show.

use std::fmt;

/// A random word, new with each start.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// 256 random bits in hexadecimal.
    pub fn random() -> Self {
        Self(format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>()))
    }

    /// The word, to hand to whoever may speak.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the word. Takes the same time wherever they differ.
    pub fn admits(&self, shown: Option<&str>) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), shown.unwrap_or_default().as_bytes());
        ours.len() == theirs.len() && ours.iter().zip(theirs).fold(0, |all, (a, b)| all | (a ^ b)) == 0
    }
}

/// Logs must not hold it.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Token;

    #[test]
    fn admits_only_the_whole_word() {
        let token = Token::random();
        let word = token.secret().to_owned();
        assert!(token.admits(Some(&word)));
        assert!(!token.admits(Some(&word[1..])));
        assert!(!token.admits(Some(&format!("{word}0"))));
        assert!(!token.admits(Some(Token::random().secret())));
        assert!(!token.admits(Some("")));
        assert!(!token.admits(None));
    }
}
