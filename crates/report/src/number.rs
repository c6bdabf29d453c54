//! Numbers as text.

/// A number as short as it can be read.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if !(1e-3..1e6).contains(&size) {
        format!("{value:.1e}").replace(".0e", "e")
    } else {
        let decimals = (2 - size.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{value:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    }
}

/// Seven significant digits, rounded up or down, always conservatively.
pub fn digits(value: f64, up: bool) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let exponent = value.abs().log10().floor() as i32;
    // Printed with an exponent and read back, a number is exactly what it shows.
    let shown: f64 = format!("{value:.6e}").parse().unwrap_or(value);
    let unit: f64 = format!("1e{}", exponent - 6).parse().unwrap_or(0.0);
    let safe = match up {
        true if shown < value => shown + unit,
        false if shown > value => shown - unit,
        _ => shown,
    };
    let decimals = (6 - exponent).max(0) as usize;
    if (-5..7).contains(&exponent) { format!("{safe:.decimals$}") } else { format!("{safe:.6e}") }
}

/// A number of bytes.
pub fn bytes(count: usize) -> String {
    match count {
        0..10_000 => format!("{count} bytes"),
        10_000..10_000_000 => format!("{:.0} kB", count as f64 / 1e3),
        _ => format!("{:.0} MB", count as f64 / 1e6),
    }
}
