    use std::fmt::Write as _;

    pub trait Plain {
        fn plain(&self, text: &mut String);
    }
    macro_rules! whole {
        ($($kind:ty)*) => { $(impl Plain for $kind {
            fn plain(&self, text: &mut String) { let _ = write!(text, "{}", self); }
        })* };
    }
    whole! { i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize bool }
    macro_rules! real {
        ($($kind:ty)*) => { $(impl Plain for $kind {
            fn plain(&self, text: &mut String) {
                assert!(self.is_finite(), "{} is not a JSON value", self);
                let _ = write!(text, "{:e}", self);
            }
        })* };
    }
    real! { f32 f64 }
    impl Plain for str {
        fn plain(&self, text: &mut String) {
            text.push('"');
            for letter in self.chars() {
                match letter {
                    '"' | '\\' => { text.push('\\'); text.push(letter) }
                    letter if (letter as u32) < 32 => { let _ = write!(text, "\\u{:04x}", letter as u32); }
                    letter => text.push(letter),
                }
            }
            text.push('"');
        }
    }
    impl Plain for String {
        fn plain(&self, text: &mut String) { self.as_str().plain(text) }
    }
    impl Plain for char {
        fn plain(&self, text: &mut String) { self.to_string().plain(text) }
    }
    impl Plain for () {
        fn plain(&self, text: &mut String) { text.push_str("null") }
    }
    impl<T: Plain + ?Sized> Plain for &T {
        fn plain(&self, text: &mut String) { (**self).plain(text) }
    }
    impl<T: Plain + ?Sized> Plain for Box<T> {
        fn plain(&self, text: &mut String) { (**self).plain(text) }
    }
    impl<T: Plain> Plain for Option<T> {
        fn plain(&self, text: &mut String) {
            match self { Some(value) => value.plain(text), None => text.push_str("null") }
        }
    }
    impl<T: Plain, E: Plain> Plain for Result<T, E> {
        fn plain(&self, text: &mut String) {
            match self {
                Ok(value) => { text.push_str("{\"Ok\":"); value.plain(text) }
                Err(value) => { text.push_str("{\"Err\":"); value.plain(text) }
            }
            text.push('}');
        }
    }
    fn list<'a, T: Plain + 'a>(items: impl Iterator<Item = &'a T>, text: &mut String) {
        text.push('[');
        for (number, item) in items.enumerate() {
            if number > 0 { text.push(',') }
            item.plain(text);
        }
        text.push(']');
    }
    impl<T: Plain> Plain for [T] {
        fn plain(&self, text: &mut String) { list(self.iter(), text) }
    }
    impl<T: Plain, const N: usize> Plain for [T; N] {
        fn plain(&self, text: &mut String) { list(self.iter(), text) }
    }
    impl<T: Plain> Plain for Vec<T> {
        fn plain(&self, text: &mut String) { list(self.iter(), text) }
    }
    impl<T: Plain> Plain for std::collections::VecDeque<T> {
        fn plain(&self, text: &mut String) { list(self.iter(), text) }
    }
    impl<T: Plain> Plain for std::collections::BTreeSet<T> {
        fn plain(&self, text: &mut String) { list(self.iter(), text) }
    }
    impl<T: Plain + Ord, S> Plain for std::collections::HashSet<T, S> {
        fn plain(&self, text: &mut String) {
            list(self.iter().collect::<std::collections::BTreeSet<_>>().into_iter(), text)
        }
    }
    fn table<'a, K: ToString + 'a, V: Plain + 'a>(
        items: impl Iterator<Item = (&'a K, &'a V)>, text: &mut String,
    ) {
        text.push('{');
        for (number, (key, item)) in items.enumerate() {
            if number > 0 { text.push(',') }
            key.to_string().plain(text);
            text.push(':');
            item.plain(text);
        }
        text.push('}');
    }
    impl<K: ToString, V: Plain> Plain for std::collections::BTreeMap<K, V> {
        fn plain(&self, text: &mut String) { table(self.iter(), text) }
    }
    impl<K: ToString, V: Plain, S> Plain for std::collections::HashMap<K, V, S> {
        fn plain(&self, text: &mut String) { table(self.iter(), text) }
    }
    macro_rules! tuples {
        ($(($($name:ident $number:tt)*))*) => { $(impl<$($name: Plain),*> Plain for ($($name,)*) {
            fn plain(&self, text: &mut String) {
                text.push('[');
                $(if $number > 0 { text.push(',') } self.$number.plain(text);)*
                text.push(']');
            }
        })* };
    }
    tuples! { (A 0) (A 0 B 1) (A 0 B 1 C 2) (A 0 B 1 C 2 D 3) (A 0 B 1 C 2 D 3 E 4) }
    fn plain<T: Plain>(value: impl FnOnce() -> T) -> String {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut text = String::new();
            value().plain(&mut text);
            text
        }));
        found.unwrap_or_else(|_| "raised a panic".to_string())
    }
    fn write(text: &str) {
        use std::{io::Write, os::unix::io::FromRawFd};
        let mut values = unsafe { std::fs::File::from_raw_fd(4) };
        values.write_all(text.as_bytes()).unwrap();
    }
