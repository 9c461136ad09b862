//! What a problem string says. It is split, not parsed: a record may be of problems that this program does not know.

/// A problem string in its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case<'a> {
    /// The first word: `batchnorm`, `layernorm`, …
    pub op: &'a str,
    /// The sizes of `x`; empty where there are none.
    pub shape: Vec<u64>,
    words: Vec<(&'a str, &'a str)>,
}

impl<'a> Case<'a> {
    /// Splits a problem string.
    #[must_use]
    pub fn of(text: &'a str) -> Case<'a> {
        let mut words = text.split_whitespace();
        let op = words.next().unwrap_or_default();
        let words: Vec<_> = words.filter_map(|word| word.split_once('=')).collect();
        let sizes = words.iter().find(|(key, _)| *key == "x").map_or("", |(_, sizes)| sizes);
        let sizes: Option<Vec<u64>> = sizes.split('x').map(|size| size.parse().ok()).collect();
        Case {
            op,
            shape: sizes.unwrap_or_default(),
            words,
        }
    }

    /// The value of a word.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.words.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    /// Whether gradients are computed.
    #[must_use]
    pub fn is_backward(&self) -> bool {
        self.get("pass") == Some("backward")
    }

    /// `forward` or `backward`.
    #[must_use]
    pub fn direction(&self) -> &'static str {
        if self.is_backward() { "backward" } else { "forward" }
    }

    /// How many elements `x` has.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |product, &size| product.saturating_mul(size))
    }

    /// All but the sizes: what is the same along a sweep.
    #[must_use]
    pub fn but_sizes(&self) -> String {
        let words = self.words.iter().filter(|(key, _)| *key != "x");
        words.fold(self.op.to_owned(), |text, (key, value)| format!("{text} {key}={value}"))
    }

    /// The string without what is the default, and without the pass, which stands in a heading.
    #[must_use]
    pub fn short(&self) -> String {
        const DEFAULTS: [(&str, &str); 3] = [("dtype", "f32"), ("param", "f32"), ("layout", "nchw")];
        let left_out = |word: &(&str, &str)| {
            DEFAULTS.contains(word) || (word.0 == "pass" && matches!(word.1, "train" | "backward"))
        };
        let words = self.words.iter().filter(|word| !left_out(word));
        words.fold(self.op.to_owned(), |text, (key, value)| format!("{text} {key}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_string_is_split() {
        let case = Case::of("batchnorm x=64x256x7x7 layout=nhwc dtype=bf16 param=f32 act=relu pass=backward");
        assert_eq!((case.op, &case.shape[..]), ("batchnorm", &[64, 256, 7, 7][..]));
        assert_eq!((case.get("layout"), case.get("groups")), (Some("nhwc"), None));
        assert!(case.is_backward());
        assert_eq!(case.short(), "batchnorm x=64x256x7x7 layout=nhwc dtype=bf16 act=relu");
        assert_eq!(case.elements(), 64 * 256 * 49);
    }

    #[test]
    fn any_text_is_a_case() {
        for text in [
            "",
            "x",
            "batchnorm x=",
            "batchnorm x=1x-2",
            "a b= =c x=99999999999999999999x2",
        ] {
            assert!(Case::of(text).shape.is_empty(), "{text}");
        }
        assert_eq!(Case::of(&format!("a x={0}x{0}", u64::MAX)).elements(), u64::MAX);
    }
}
