//! Signs, codes and commands of currencies. They are dropped like units.

/// Signs of currencies. The dollar is also the delimiter of formulas.
const SIGNS: &str = "€£¥￥₹₽₩₪₫₺₴₦฿₱₡₲₵₸₮₨¢₿";
/// Codes and abbreviations before or after an amount.
const CODES: [&str; 49] = [
    "AED", "SAR", "EGP", "NGN", "KES", "PKR", "BDT", "UAH", "HUF", "ARS", "CLP", "TWD", "USD", "US", "EUR", "GBP",
    "INR", "JPY", "CNY", "RMB", "CHF", "CAD", "AUD", "NZD", "HKD", "SGD", "KRW", "BRL", "MXN", "ZAR", "RUB", "SEK",
    "NOK", "DKK", "PLN", "CZK", "TRY", "THB", "IDR", "VND", "PHP", "MYR", "ILS", "Rs", "Rp", "RM", "Kr", "kr", "Tk",
];
/// Commands of currencies.
const COMMANDS: [&str; 17] = [
    "pounds",
    "euro",
    "EUR",
    "texteuro",
    "textsterling",
    "sterling",
    "yen",
    "textyen",
    "rupee",
    "INR",
    "cent",
    "cents",
    "textcent",
    "textdollar",
    "dollar",
    "mathdollar",
    "mathsterling",
];

pub(super) fn is_sign(c: char) -> bool {
    SIGNS.contains(c)
}

pub(super) fn is_code(word: &str) -> bool {
    CODES.contains(&word)
}

pub(super) fn is_command(name: &str) -> bool {
    COMMANDS.contains(&name)
}
