//! An environment file, and the flags in a variable of it, as systemd reads them.

use std::str::Chars;

/// The variables of an environment file, as `src/basic/env-file.c` of systemd reads it.
pub(crate) fn variables(text: &str) -> Vec<(String, String)> {
    let (mut variables, mut rest) = (Vec::new(), text.chars());
    while let Some(first) = rest.next() {
        if ['#', ';'].contains(&first) {
            rest.by_ref().find(is_newline);
        } else if !first.is_ascii_whitespace() {
            let (mut name, mut end) = (String::from(first), None);
            for c in rest.by_ref() {
                if c == '=' || is_newline(&c) {
                    end = Some(c);
                    break;
                }
                name.push(c);
            }
            if end == Some('=') {
                variables.push((name.trim_end().to_owned(), value(&mut rest)));
            }
        }
    }
    variables
}

fn is_newline(c: &char) -> bool {
    ['\n', '\r'].contains(c)
}

/// A value, up to the end of its line. A quote opens at its begin, or after another one that has
/// closed; blanks at its end count only within quotes.
fn value(rest: &mut Chars<'_>) -> String {
    let (mut value, mut length, mut quote, mut may_open) = (String::new(), 0, None, true);
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, c) if is_newline(&c) => break,
            (None, ' ' | '\t') if may_open => continue,
            (None, '"' | '\'') if may_open => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => {
                may_open = quote.is_some();
                match rest.next() {
                    Some(c) if is_newline(&c) => {}
                    Some(c) if quote.is_some() && !['"', '\\', '`', '$'].contains(&c) => {
                        value.extend(['\\', c]);
                    }
                    other => value.extend(other),
                }
            }
            (None, ' ' | '\t') => {
                value.push(c);
                continue;
            }
            (_, c) => {
                may_open = quote.is_some();
                value.push(c);
            }
        }
        length = value.len();
    }
    value.truncate(length);
    value
}

/// The words of a variable in an `ExecStart=`, as `extract_first_word` of systemd takes off quotes.
pub(crate) fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut rest) = (Vec::new(), None, None, text.chars());
    while let Some(c) = rest.next() {
        match (quote, c) {
            (None, c) if c.is_ascii_whitespace() => words.extend(word.take()),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_with(String::new);
            }
            (Some(open), c) if c == open => quote = None,
            (_, '\\') => word.get_or_insert_with(String::new).extend(rest.next()),
            (_, c) => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    words
}

/// The value of a variable: the last one counts.
pub(crate) fn value_of<'a>(variables: &'a [(String, String)], name: &str) -> &'a str {
    let found = variables.iter().rfind(|(own, _)| own == name);
    found.map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_systemd_reads_them() {
        for (file, want) in [
            ("NODELET_FLAGS=--a  --b=c \n", &["--a", "--b=c"][..]),
            ("NODELET_FLAGS = --a", &["--a"]),
            ("NODELET_FLAGS=--a\r\nOTHER=b", &["--a"]),
            ("NODELET_FLAGS='--a=\"x y\"' ' --b'", &["--a=x y", "--b"]),
            ("NODELET_FLAGS=\"--v=2 '--a=/run/my file'\"", &["--v=2", "--a=/run/my file"]),
            ("NODELET_FLAGS=--v=2 '--a=/run/my file'", &["--v=2", "--a=/run/my file"]),
            ("NODELET_FLAGS=\"--a=\\\"x y\\\" \\b\"", &["--a=x y", "b"]),
            ("NODELET_FLAGS=--a=it\\\\'s", &["--a=it's"]),
            ("NODELET_FLAGS=\"--a= \\\n b\"", &["--a=", "b"]),
            ("NODELET_FLAGS=--a\nexport NODELET_FLAGS=--b", &["--a"]),
            ("# x\\\nNODELET_FLAGS=''\n", &[]),
            ("NODELET_FLAGS=\"''\"", &[""]),
            ("NODELET_FLAGS=\"--a", &["--a"]),
        ] {
            let variables = variables(file);
            assert_eq!(words(value_of(&variables, "NODELET_FLAGS")), want, "{file:?}");
        }
    }
}
