//! `resource.Quantity`: parse, and write the canonical form that a real server stores.

/// What the server says about anything else.
pub(crate) const REGEX_MESSAGE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// A parsed quantity: `mantissa * 10^exponent`, and how it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    mantissa: i128,
    exponent: i32,
    family: Family,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Decimal,
    Binary,
    Exponent,
}

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl Quantity {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bad = || REGEX_MESSAGE.to_owned();
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '+' || c == '-'))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        if all.is_empty() || all.len() > 30 || !all.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        let mut mantissa: i128 = all.parse().map_err(|_| bad())?;
        if negative {
            mantissa = -mantissa;
        }
        let mut exponent = -i32::try_from(fraction.len()).map_err(|_| bad())?;
        let family = if let Some(power) = BINARY.iter().position(|b| *b == suffix) {
            let shift = 10 * (u32::try_from(power).map_err(|_| bad())? + 1);
            mantissa = mantissa.checked_mul(1 << shift).ok_or_else(bad)?;
            Family::Binary
        } else if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
            exponent += power;
            Family::Decimal
        } else if let Some(power) = suffix.strip_prefix(['e', 'E']) {
            exponent += power.parse::<i32>().map_err(|_| bad())?;
            Family::Exponent
        } else {
            return Err(bad());
        };
        if !(-30..=30).contains(&exponent) {
            return Err(bad());
        }
        Ok(Self { mantissa, exponent, family })
    }

    pub(crate) fn negative(self) -> bool {
        self.mantissa < 0
    }

    /// Whether the value has no fraction.
    pub(crate) fn whole(self) -> bool {
        self.stripped().1 >= 0
    }

    fn stripped(self) -> (i128, i32) {
        let (mut mantissa, mut exponent) = (self.mantissa, self.exponent);
        if mantissa == 0 {
            return (0, 0);
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        (mantissa, exponent)
    }

    fn integer(self) -> Option<i128> {
        let (mantissa, exponent) = self.stripped();
        let factor = 10_i128.checked_pow(u32::try_from(exponent).ok()?)?;
        mantissa.checked_mul(factor)
    }

    /// The canonical form: integer mantissa, the largest suffix of its family that loses nothing.
    pub(crate) fn canonical(self) -> String {
        if self.family == Family::Binary
            && let Some(mut value) = self.integer()
            && value.abs() >= 1024
        {
            let mut power = 0;
            while value % 1024 == 0 && power < BINARY.len() {
                value /= 1024;
                power += 1;
            }
            return match power {
                0 => value.to_string(),
                _ => format!("{value}{}", BINARY[power - 1]),
            };
        }
        let (mut mantissa, mut exponent) = self.stripped();
        while exponent % 3 != 0 || exponent > 18 {
            mantissa *= 10;
            exponent -= 1;
        }
        while exponent < -9 {
            // nothing below nano: rounded up
            mantissa = (mantissa + 9).div_euclid(10);
            exponent += 1;
        }
        if self.family == Family::Exponent && exponent != 0 {
            return format!("{mantissa}e{exponent}");
        }
        let suffix = DECIMAL.iter().find(|(_, power)| *power == exponent);
        format!("{mantissa}{}", suffix.map_or("", |(name, _)| name))
    }
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
