//! `resource.Quantity`: exact text and exact values, without floats.
//!
//! The API server stores a quantity in the canonical form of its suffix family (apimachinery
//! `pkg/api/resource/quantity.go`). With another form, or with a comparison of texts, the status
//! would differ from the server's at every update and cause a patch each time.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A number with a unit, as in `capacity` and `allocatable`.
///
/// The value is in billionths, the smallest unit of Kubernetes; finer input is rounded up, as in
/// Kubernetes. Equality and order are numeric: `1Gi` equals `1048576Ki`, and `4` equals `4000m`.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    family: Family,
}

/// The suffix family of a value. Arithmetic keeps the family of the left operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `n u m k M G T P E`: cpu, pods, extended resources.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: memory, huge pages, storage.
    BinarySi,
    /// `e3`: only parsed, from objects of other writers.
    DecimalExponent,
}

const NANO: i128 = 1_000_000_000;

/// Suffixes with their power of ten in billionths, largest first.
const DECIMAL: [(&str, u32); 10] = [
    ("E", 27),
    ("P", 24),
    ("T", 21),
    ("G", 18),
    ("M", 15),
    ("k", 12),
    ("", 9),
    ("m", 6),
    ("u", 3),
    ("n", 0),
];

/// Suffixes with their power of 1024, largest first.
const BINARY: [(&str, u32); 6] = [("Ei", 6), ("Pi", 5), ("Ti", 4), ("Gi", 3), ("Mi", 2), ("Ki", 1)];

impl Quantity {
    /// A count (cpu, pods), written with decimal suffixes.
    pub fn count(n: u64) -> Self {
        Self { nanos: i128::from(n) * NANO, family: Family::DecimalSi }
    }

    /// A size in bytes, written with binary suffixes.
    pub fn bytes(n: u64) -> Self {
        Self { nanos: i128::from(n) * NANO, family: Family::BinarySi }
    }

    /// Whether the value is an integer.
    pub fn is_whole(self) -> bool {
        self.nanos % NANO == 0
    }

    /// Whether the difference is 1 % of `other` at most.
    pub fn is_near(self, other: Self) -> bool {
        self.nanos.abs_diff(other.nanos) <= other.nanos.unsigned_abs() / 100
    }

    /// `self - other`, at least zero, in the family of `self`, or of `other` if `self` is zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let family = if self.nanos == 0 { other.family } else { self.family };
        Self { nanos: self.nanos.saturating_sub(other.nanos).max(0), family }
    }

    /// `self + other`, in the family of `self`, or of `other` if `self` is zero.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let family = if self.nanos == 0 { other.family } else { self.family };
        Self { nanos: self.nanos.saturating_add(other.nanos), family }
    }

    /// The smallest mantissa, with its suffix and the power of ten of that.
    fn decimal(self) -> (i128, &'static str, u32) {
        let divides = |(_, power): &&(&str, u32)| self.nanos % 10_i128.pow(*power) == 0;
        let (suffix, power) = DECIMAL.iter().find(divides).copied().unwrap_or(("n", 0));
        (self.nanos / 10_i128.pow(power), suffix, power)
    }
}

/// The smallest mantissa of a whole number, and its suffix.
fn binary(whole: i128) -> (i128, &'static str) {
    let divides = |(_, power): &&(&str, u32)| whole % 1024_i128.pow(*power) == 0;
    let (suffix, power) = BINARY.iter().find(divides).copied().unwrap_or(("", 0));
    (whole / 1024_i128.pow(power), suffix)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANO;
        if self.family == Family::BinarySi && self.is_whole() && whole.abs() >= 1024 {
            let (mantissa, suffix) = binary(whole);
            return write!(f, "{mantissa}{suffix}");
        }
        let (mantissa, suffix, power) = self.decimal();
        if self.family == Family::DecimalExponent && power != 9 {
            return write!(f, "{mantissa}e{}", i64::from(power) - 9);
        }
        write!(f, "{mantissa}{suffix}")
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl FromStr for Quantity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        const FAULT: &str =
            "not a quantity; use a number with a suffix such as 100Mi, 2Gi, 500m or 4";
        parse_quantity(text).ok_or(FAULT)
    }
}

/// `None` if the text is not a quantity, or its value exceeds 10^29.
fn parse_quantity(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let (times, over, family) = unit(suffix)?;

    // mantissa * times / over / 10^digits, rounded up, in integer arithmetic.
    let fraction = fraction.trim_end_matches('0');
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let mantissa = digits(whole)?.checked_mul(scale)?.checked_add(digits(fraction)?)?;
    let nanos = ceiling(ceiling(mantissa.checked_mul(times)?, over), scale);
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, family })
}

fn ceiling(number: i128, divisor: i128) -> i128 {
    number / divisor + i128::from(number % divisor != 0)
}

/// The factor and the divisor of a suffix that convert a mantissa to billionths.
fn unit(suffix: &str) -> Option<(i128, i128, Family)> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((10_i128.pow(*power), 1, Family::DecimalSi));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((1024_i128.pow(*power).checked_mul(NANO)?, 1, Family::BinarySi));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    let power = exponent.checked_add(9)?;
    let unit = 10_i128.checked_pow(power.unsigned_abs())?;
    let (times, over) = if power < 0 { (1, unit) } else { (unit, 1) };
    Some((times, over, Family::DecimalExponent))
}

/// The caller passes digits only, so the one possible error is overflow.
fn digits(text: &str) -> Option<i128> {
    if text.is_empty() { Some(0) } else { text.parse().ok() }
}

/// A decimal number as Go and YAML write it: `-1.5e+3`, `.5` or `7.`, but not std's `inf` and
/// `nan`. One that is too large is infinite.
pub(crate) fn float<F: FromStr>(text: &str) -> Option<F> {
    let is_decimal = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    text.bytes().all(is_decimal).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_a_float_are_parsed_and_nothing_else() {
        for text in [
            "0", "-0", "10", "007", "1.5", "-1.5", "+1.5", ".5", "-.5", "7.", "00.50", "1e3",
            "-1E-3", "1.e+2", ".5e1", "0.1", "25.5", "1e999", "-1e999", "1e-999", "0e999",
        ] {
            assert_eq!(float(text), Some(text.parse::<f64>().unwrap()), "{text}");
        }
        for text in [
            "", "+", "-", ".", "..", "1..5", "1.5.", "e1", ".e1", "1e", "1e+", "1e1.5", "--1",
            "+-1", "1_0", "0x10", "inf", "NaN", "1 ", " 1", "1f", "1e1e1", "\u{661}",
        ] {
            assert_eq!(float::<f64>(text), None, "{text}");
        }
    }

    fn canonical(text: &str) -> String {
        text.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn the_canonical_form_is_that_of_the_server() {
        // apimachinery pkg/api/resource/quantity_test.go
        for (text, want) in [
            ("4000m", "4"),
            ("3920m", "3920m"),
            ("1500", "1500"),
            ("2000", "2k"),
            ("10000", "10k"),
            ("0", "0"),
            ("0Gi", "0"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("100e3", "100e3"),
            ("1E", "1E"),
            ("0.5", "500m"),
            ("0.5Gi", "512Mi"),
            (".5Gi", "512Mi"),
            ("1.", "1"),
            ("+3", "3"),
            ("-1", "-1"),
            ("1025Ki", "1025Ki"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("0.000000001", "1n"),
            ("0.0000000001", "1n"),
            ("100e-3", "100e-3"),
            ("12e-12", "1e-9"),
            ("5Ei", "5Ei"),
            ("-2048Ki", "-2Mi"),
            ("-0.5Ki", "-512"),
        ] {
            assert_eq!(canonical(text), want, "{text}");
        }
        for (bytes, want) in [
            (3_977_535_488, "3884312Ki"),
            (4_294_967_296, "4Gi"),
            (96_626_364_666, "96626364666"),
            (1000, "1k"),
            (1023, "1023"),
            (1024, "1Ki"),
            (0, "0"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(Quantity::bytes(bytes).to_string(), want);
        }
        assert_eq!(Quantity::count(2000).to_string(), "2k");
    }

    #[test]
    fn invalid_text_is_an_error() {
        let bad = "lots 1.2.3 . Gi 1GiB 1e 1e1000000 --1 ٣ \
                   99999999999999999999999999999999999999999 12K";
        for text in bad.split(' ').chain(["", "1 Gi"]) {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    use proptest::prelude::*;

    /// A text and its value as `mantissa * 10^ten * 1024^two`, computed without the parser. Without
    /// E, Ei and Pi: with a mantissa of 10^12 they overflow.
    fn suffixed() -> impl Strategy<Value = (String, i128, i32, u32)> {
        let suffix = prop_oneof![
            prop::sample::select(&DECIMAL[1..]).prop_map(|(s, p)| (s.to_owned(), p, 0)),
            prop::sample::select(&BINARY[2..]).prop_map(|(s, p)| (s.to_owned(), 9, p)),
            (-9_i32..=12).prop_map(|e| { (format!("e{e}"), u32::try_from(e + 9).unwrap(), 0) }),
        ];
        let digits = -1_000_000_000_000_i64..1_000_000_000_000;
        (digits, 0_usize..12, suffix).prop_map(|(mantissa, places, (suffix, ten, two))| {
            let plain = format!("{:0>width$}", mantissa.unsigned_abs(), width = places + 1);
            let (whole, fraction) = plain.split_at(plain.len() - places);
            let point = if places > 0 { "." } else { "" };
            let sign = if mantissa < 0 { "-" } else { "" };
            let text = format!("{sign}{whole}{point}{fraction}{suffix}");
            let ten = i32::try_from(ten).unwrap() - i32::try_from(places).unwrap();
            (text, mantissa.into(), ten, two)
        })
    }

    /// Billionths, rounded away from zero.
    fn exact(mantissa: i128, ten: i32, two: u32) -> i128 {
        let scaled = mantissa * 1024_i128.pow(two);
        let power = 10_i128.pow(ten.unsigned_abs());
        if ten >= 0 {
            return scaled * power;
        }
        let up = (scaled.abs() + power - 1) / power;
        up * scaled.signum()
    }

    proptest! {
        #[test]
        fn a_text_is_parsed_exactly((text, mantissa, ten, two) in suffixed()) {
            let q: Quantity = text.parse().unwrap();
            prop_assert_eq!(q.nanos, exact(mantissa, ten, two), "{}", text);
        }

        #[test]
        fn the_written_text_has_the_same_value((text, ..) in suffixed()) {
            let q: Quantity = text.parse().unwrap();
            let written = q.to_string();
            let read: Quantity = written.parse().unwrap();
            prop_assert_eq!(read, q, "{} {}", text, written);
            // A binary value that is not a multiple of 1024 is written without a suffix and parsed
            // as a decimal value. The form does not change after that.
            let again = read.to_string();
            prop_assert_eq!(canonical(&again), again.clone());
            if q.family != Family::BinarySi {
                prop_assert_eq!(again, written);
            }
        }

        /// Both sides of the comparison are integers.
        #[test]
        fn the_order_is_that_of_the_exact_values(a in suffixed(), b in suffixed()) {
            let read = |text: &str| text.parse::<Quantity>().unwrap();
            let exact = |(_, mantissa, ten, two): &(String, i128, i32, u32)| {
                exact(*mantissa, *ten, *two)
            };
            prop_assert_eq!(read(&a.0).cmp(&read(&b.0)), exact(&a).cmp(&exact(&b)));
            prop_assert_eq!(read(&a.0) == read(&b.0), exact(&a) == exact(&b));
        }

        #[test]
        fn difference_and_sum_are_exact_and_keep_the_left_family(a in suffixed(), b in suffixed()) {
            let (a, b): (Quantity, Quantity) = (a.0.parse().unwrap(), b.0.parse().unwrap());
            let family = if a.nanos == 0 { b.family } else { a.family };
            let (difference, sum) = (a.minus(b), a.plus(b));
            prop_assert_eq!(difference.nanos, (a.nanos - b.nanos).max(0));
            prop_assert_eq!(sum.nanos, a.nanos + b.nanos);
            prop_assert_eq!((difference.family, sum.family), (family, family));
        }

        #[test]
        fn sizes_and_counts_survive_a_round_trip(n: u64) {
            for q in [Quantity::bytes(n), Quantity::count(n)] {
                prop_assert_eq!(q.to_string().parse(), Ok(q));
            }
        }

        #[test]
        fn no_text_causes_a_panic(text in "[-+]{0,2}[0-9.]{0,45}([eEnumkKMGTPi]{0,3}[-+]?[0-9]{0,12})") {
            if let Ok(q) = text.parse::<Quantity>() {
                let _ = (q.to_string(), q.plus(q), q.minus(q));
            }
        }
    }
}
