//! Decimal numbers with a fraction or an exponent, parsed by serde_json: std's parser would add
//! 13 KB to the binary for the percentage of a threshold.

use serde_json::Value;

/// Parses `-1.5e+3`, `.5` or `7.`, as Go does. `None` if the text has another form.
/// A number that is too large is infinite. Exact up to 15 digits and 22 powers
/// of ten, else the last bit may differ from that of `str::parse`.
pub fn parse(text: &str) -> Option<f64> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_decimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let power = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    if mantissa.trim_matches('.').is_empty() || power.is_empty() {
        return None;
    }
    if ![whole, fraction, power].into_iter().all(is_decimal) {
        return None;
    }
    // JSON has digits on both sides of a point, and no zeros before others.
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let point = if fraction.is_empty() { "" } else { "." };
    let json = format!("{sign}{whole}{point}{fraction}e{exponent}");
    match serde_json::from_slice::<Value>(json.as_bytes()) {
        Ok(number) => number.as_f64(),
        Err(_) if sign.is_empty() => Some(f64::INFINITY),
        Err(_) => Some(f64::NEG_INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_number_are_parsed_and_nothing_else() {
        for text in [
            "0", "-0", "10", "007", "1.5", "-1.5", "+1.5", ".5", "-.5", "7.", "00.50", "1e3",
            "-1E-3", "1.e+2", ".5e1", "0.1", "25.5", "1e999", "-1e999", "1e-999", "0e999",
        ] {
            assert_eq!(parse(text), Some(text.parse().unwrap()), "{text}");
        }
        for text in [
            "", "+", "-", ".", "..", "1..5", "1.5.", "e1", ".e1", "1e", "1e+", "1e1.5", "--1",
            "+-1", "1_0", "0x10", "inf", "NaN", "1 ", " 1", "1f", "1e1e1", "\u{661}",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        /// 15 digits are exact. In 32 bits, as in a threshold, this holds as well.
        #[test]
        fn fifteen_digits_have_the_value_that_std_parses(
            digits in 0..1_000_000_000_000_000_u64, point in 0..16_usize, exponent in -6..6_i32,
        ) {
            let mut text = format!("{digits:016}");
            text.insert(point, '.');
            text.push_str(&format!("e{exponent}"));
            let value = parse(&text).unwrap();
            proptest::prop_assert_eq!(value, text.parse::<f64>().unwrap(), "{}", &text);
            #[expect(clippy::cast_possible_truncation)]
            let narrow = value as f32;
            proptest::prop_assert_eq!(narrow, text.parse::<f32>().unwrap(), "{}", text);
        }
    }
}
