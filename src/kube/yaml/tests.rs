#![allow(clippy::disallowed_methods)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn scalars_follow_the_core_schema() {
    for (text, want) in [
        ("", json!(null)),
        ("~", json!(null)),
        ("Null", json!(null)),
        ("nULL", json!("nULL")),
        ("true", json!(true)),
        ("FALSE", json!(false)),
        ("yes", json!("yes")),
        ("on", json!("on")),
        ("0", json!(0)),
        ("-12", json!(-12)),
        ("+12", json!(12)),
        ("010", json!(10)),
        ("0o17", json!(15)),
        ("0x1F", json!(31)),
        ("0x", json!("0x")),
        ("0xg", json!("0xg")),
        ("18446744073709551615", json!(u64::MAX)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("5.", json!(5.0)),
        ("-1e3", json!(-1000.0)),
        ("1e", json!("1e")),
        ("e5", json!("e5")),
        (".", json!(".")),
        ("+", json!("+")),
        ("1.2.3", json!("1.2.3")),
        ("10.0.0.1", json!("10.0.0.1")),
        ("10s", json!("10s")),
        ("100Mi", json!("100Mi")),
        ("'5'", json!("5")),
        ("\"true\"", json!("true")),
        ("\"\"", json!("")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        (">-\n  a\n  b\n", json!("a b")),
    ] {
        assert_eq!(parse(text), Ok(want), "{text:?}");
    }
}

#[test]
fn json_is_parsed_as_yaml() {
    for text in [
        r#"{"a":{"b":[1,true,null,"x\ty\/\u00e9"],"c":{}},"d":""}"#,
        "{\n\t\"a\": {\n\t\t\"b\": [1, true, null, \"x\\ty/é\"],\n\t\t\"c\": {}\n\t},\n\t\"d\": \"\"\n}\n",
        "a:\n  b:\n  - 1\n  - true\n  -\n  - \"x\\ty/é\"\n  c: {}\nd: ''\n",
        "\u{feff}---\n# a comment\na: {b: [1, true, null, \"x\\ty/é\"], c: {}}\nd: \"\"\n...\n",
        "a: {b: [1, true, null, \"x\\ty/é\"], c: {}}\nd: ''\n---\n# the end\n",
    ] {
        let want = json!({"a": {"b": [1, true, null, "x\ty/é"], "c": {}}, "d": ""});
        assert_eq!(parse(text), Ok(want), "{text}");
    }
}

#[test]
fn an_error_has_line_and_column() {
    for (text, want) in [
        ("a: 1\nb: 2\na: 3\n", "line 3, column 1: duplicate key \"a\""),
        ("a: &x 1\n", "line 1, column 4: an anchor; write the value out"),
        ("a: &x {b: 1}\n", "line 1, column 4: an anchor; write the value out"),
        ("a: &x 1\nb: *x\n", "line 1, column 4: an anchor; write the value out"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document; only one is read"),
        ("1: a\n", "line 1, column 1: a key that is not a string; put it in quotes"),
        ("true: a\n", "line 1, column 1: a key that is not a string; put it in quotes"),
        ("? [a]\n: b\n", "line 1, column 5: a key that is not a string; put it in quotes"),
        ("a: !!str 5\n", "line 1, column 4: a tag; tags are not read"),
        ("a: .inf\n", "line 1, column 4: a number without a form in JSON; put it in quotes"),
        (
            "a: 18446744073709551616\n",
            "line 1, column 4: a number that is too large; put it in quotes",
        ),
        ("a: 1e999\n", "line 1, column 4: a number that is too large; put it in quotes"),
    ] {
        assert_eq!(parse(text).unwrap_err().to_string(), want, "{text}");
    }
    for text in [
        "a: *x\n",
        "a: [1\n",
        "a: \"x\n",
        "a: b: c\n",
        "a:\n\tb: 1\n",
        "%FOO\n",
        "a: 'x",
        "{\"a\":",
        "}",
    ] {
        let refused = parse(text).unwrap_err();
        assert!(refused.what.starts_with("line "), "{text:?}: {refused}");
    }
}

#[test]
fn size_depth_and_count_are_bounded() {
    assert_eq!(
        parse(&" ".repeat(SIZE_LIMIT + 1)).unwrap_err().to_string(),
        "1048577 bytes of YAML; the maximum is 1048576"
    );
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert!(parse(&nested(DEPTH_LIMIT)).is_ok());
    assert_eq!(
        parse(&nested(DEPTH_LIMIT + 1)).unwrap_err().what,
        "line 1, column 65: nested deeper than 64 levels"
    );
    assert_eq!(
        parse(&format!("[{}]", "1,".repeat(NODE_LIMIT))).unwrap_err().what,
        "line 1, column 32768: more than 16384 values"
    );
}

#[test]
fn an_error_does_not_quote_a_value() {
    for value in [
        "777777777777777777777",
        "-777777777777777777777",
        "0x77777777777777777777",
        "0o7777777777777777777777777",
        "777e777",
        "!777",
        "*777",
        "&777 a",
        "a 777: b: c",
        "\"777",
        "\"777\\q\"",
        "%777",
        "@777",
        "`777",
        "[777",
    ] {
        let error = parse(&format!("password: {value}\n")).unwrap_err();
        assert!(error.what.starts_with("line "), "{value}: {error}");
        assert!(!error.to_string().contains("777"), "{value}: {error}");
    }
}

/// CPU time of this thread: other tests and a busy machine do not count.
fn cpu_time() -> std::time::Duration {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Each text has the maximum size; it must neither panic nor take long.
#[test]
fn a_text_of_the_maximum_size_is_parsed_quickly() {
    for unit in [
        "[", "{", "- ", "a: ", "? ", "\"", "'", "|\n", "&a ", "*a ", "!a ", "a", "\n", " ", "\t",
        "#", "---\n", "{a: ", "- - a\n", ": ", ",", "%a\n", "\\",
    ] {
        let text = unit.repeat(SIZE_LIMIT / unit.len());
        let start = cpu_time();
        let _ = parse(&text);
        let quoted = format!("\"{}", unit.repeat(SIZE_LIMIT / unit.len() - 1));
        let _ = parse(&quoted);
        let took = cpu_time() - start;
        assert!(took.as_secs() < 5, "{unit:?} took {took:?}");
    }
}

proptest! {
    #[test]
    fn never_panics(text in "[ \\-:{}\\[\\],\"'|>&*!%#?~a0.e\n\t\u{feff}é]{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn every_json_text_has_its_json_value(text in json_text()) {
        let want: serde_json::Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parse(&text), Ok(want));
    }
}

fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|b| json!(b)),
        any::<i64>().prop_map(|i| json!(i)),
        "[ -~é]{0,12}".prop_map(|s| json!(s)),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[ -~]{0,8}", inner, 0..4)
                .prop_map(|m| m.into_iter().collect::<serde_json::Value>()),
        ]
    });
    tree.prop_map(|value| value.to_string())
}
