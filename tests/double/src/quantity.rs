//! `resource.Quantity`: parse, and write the canonical form that a real server stores.

/// What the server says about anything else.
pub(crate) const REGEX_MESSAGE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A parsed quantity.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quantity {
    /// The value in billionths: the real server rounds what is smaller up to one.
    nanos: i128,
    family: Family,
}

/// How it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

/// The suffix of each power of 1000, from a billionth on.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// And of each power of 1024.
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const ONE: i128 = 1_000_000_000;

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        Self::read(text).ok_or_else(|| REGEX_MESSAGE.to_owned())
    }

    fn read(text: &str) -> Option<Self> {
        let is_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
        let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (unit, family) = if let Some(unit) = unit(&BINARY[1..], 1024, suffix) {
            (unit * 1024 * ONE, Family::Binary)
        } else if let Some(unit) = unit(&DECIMAL, 1000, suffix) {
            (unit, Family::Decimal)
        } else {
            let power: u32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            (10_i128.checked_pow(power)?.checked_mul(ONE)?, Family::Exponent)
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let parts = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let nanos = digits.checked_mul(unit)?;
        let is_rounded_up = nanos > 0 && nanos % parts > 0;
        Some(Self { nanos: nanos / parts + i128::from(is_rounded_up), family })
    }

    pub(crate) fn negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the value has no fraction.
    pub(crate) fn whole(self) -> bool {
        self.nanos % ONE == 0
    }

    /// The canonical form: integer mantissa, the largest suffix of its family that loses nothing.
    pub(crate) fn canonical(self) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let value = self.nanos / ONE;
        if self.family == Family::Binary && self.whole() && value.abs() >= 1024 {
            let (mantissa, power) = divided(value, 1024, BINARY.len());
            return format!("{mantissa}{}", BINARY[power]);
        }
        let (mantissa, power) = divided(self.nanos, 1000, DECIMAL.len());
        match (self.family, power) {
            (Family::Exponent, 4..) => format!("{mantissa}e{}", 3 * (power - 3)),
            _ => format!("{mantissa}{}", DECIMAL[power]),
        }
    }
}

/// The power of `base` that a suffix stands for.
fn unit(suffixes: &[&str], base: i128, suffix: &str) -> Option<i128> {
    let power = suffixes.iter().position(|known| *known == suffix)?;
    base.checked_pow(u32::try_from(power).ok()?)
}

/// A value without the powers of `base` in it, fewer than `limit`, and how many they were.
fn divided(mut value: i128, base: i128, limit: usize) -> (i128, usize) {
    let mut power = 0;
    while value % base == 0 && power + 1 < limit {
        value /= base;
        power += 1;
    }
    (value, power)
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn canonical_forms_are_those_of_the_real_server() {
        for (input, output) in [
            ("4000m", "4"),
            ("3920m", "3920m"),
            ("1500", "1500"),
            ("2000", "2k"),
            ("10000", "10k"),
            ("0", "0"),
            ("0Ki", "0"),
            ("3884312Ki", "3884312Ki"),
            ("4194304Ki", "4Gi"),
            ("1e3", "1e3"),
            ("1Ki", "1Ki"),
            ("0.5Gi", "512Mi"),
            ("1.5", "1500m"),
            ("0.5Ki", "512"),
            ("27921855244", "27921855244"),
        ] {
            let got = Quantity::parse(input).map(Quantity::canonical);
            assert_eq!(got.as_deref(), Ok(output), "{input}");
        }
        for input in ["", "12 potatoes", "lots", "1x", "."] {
            assert!(Quantity::parse(input).is_err(), "{input}");
        }
    }
}
