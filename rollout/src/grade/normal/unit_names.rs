//! Names of units that are short, or are written right behind a number. Longer words need no list:
//! behind a number they are prose.

use super::names::is_mathematics;
use super::setting::undelimited;
use super::{currency, scale};

/// Units right behind a number or a space. Single letters are left out, because they may be
/// variables.
const GLUED: [&str; 58] = [
    "cm", "mm", "km", "dm", "kg", "mg", "ml", "mL", "cl", "cL", "dl", "dL", "ft", "mph", "kph", "kmh", "lb", "lbs",
    "oz", "hr", "hrs", "min", "mins", "sec", "secs", "kW", "MW", "kWh", "kJ", "MJ", "kN", "kPa", "MPa", "Hz", "kHz",
    "MHz", "GHz", "KB", "MB", "GB", "TB", "kB", "rpm", "fps", "yd", "yds", "yr", "yrs", "pcs", "pct", "pts", "kcal",
    "eV", "keV", "MeV", "psi", "ppm", "mV",
];
/// Units that could be a product of variables if they stood right behind a number.
const SPACED: [&str; 64] = [
    "in", "yen", "won", "mi", "pt", "us", "ms", "ns", "nm", "um", "pm", "am", "ha", "mo", "mos", "wk", "wks", "day",
    "gal", "qt", "tsp", "bar", "atm", "cal", "Pa", "mol", "mM", "Nm", "mA", "kV", "gm", "gms", "sq", "cu", "rad",
    "deg", "pp", "dB", "lux", "ton", "lot", "box", "cup", "jar", "pen", "egg", "cow", "cat", "dog", "hen", "car",
    "bus", "bag", "can", "boy", "kid", "man", "men", "toy", "key", "row", "set", "pie", "gum",
];
/// Quotients of units with a single letter.
const QUOTIENTS: [&str; 17] = [
    "m/s", "g/L", "g/l", "J/K", "N/m", "V/m", "W/m", "C/s", "m/h", "L/s", "L/h", "g/h", "J/s", "N/C", "J/g", "J/C",
    "g/s",
];
/// Single letters that are units behind the stroke of a quotient.
const LETTERS: &str = "hsmgLlKCJNWVAd";

/// Returns true for a unit that needs no space before it.
pub(super) fn is_glued(word: &str) -> bool {
    GLUED.contains(&word)
}

/// Returns true for a unit behind a space, also in the plural.
pub(super) fn is_spaced(word: &str) -> bool {
    let known = |word: &str| SPACED.contains(&word) || GLUED.contains(&word);
    known(word) || word.strip_suffix('s').is_some_and(|word| word.len() > 1 && known(word))
}

/// Returns the quotient at the beginning of a text: `m/s` and then no letter.
pub(super) fn quotient(text: &str) -> Option<&str> {
    let (above, below) = text.split_once('/')?;
    let below = &below[..below.bytes().take_while(u8::is_ascii_alphabetic).count()];
    if above.len() == 1 && LETTERS.contains(above) && below.len() > 1 && is_spaced(below) {
        return Some(&text[..2 + below.len()]);
    }
    let found = QUOTIENTS.iter().find(|quotient| {
        let rest = text.strip_prefix(**quotient);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '('))
    });
    found.copied()
}

/// Returns true for a unit behind a stroke: `km/h`.
pub(super) fn is_denominator(word: &str) -> bool {
    is_spaced(word) || (word.len() == 1 && LETTERS.contains(word))
}

/// Returns true for letters that may follow a number in a line without a sentence: a unit, a
/// word of scale, a name of mathematics, or a product of variables.
pub(crate) fn is_next_to_number(word: &str) -> bool {
    let joining = [
        "and", "or", "AND", "OR", "And", "Or", "to", "AM", "PM", "mod", "oder", "und", "ou", "et", "или",
    ]
    .contains(&word);
    let product = word.len() <= 3 && word.is_ascii() && !word.to_lowercase().contains(['a', 'e', 'i', 'o', 'u']);
    joining
        || product
        || is_spaced(word)
        || is_mathematics(word)
        || scale::is_scale(word)
        || scale::is_percent(word)
        || currency::is_code(word)
}

/// Returns a number without the letter of its unit behind white space: `4 m`, `4 m^2`, `$4$ K`.
pub(crate) fn without_unit(text: &str) -> Option<&str> {
    let text = undelimited(text.trim_end_matches(['.', ' ']));
    let powers = ["^2", "^3", "²", "³"].iter();
    let power = powers.filter_map(|power| text.strip_suffix(power)).next();
    let text = power.filter(|unit| unit.ends_with(" m")).unwrap_or(text);
    let number = text.strip_suffix(|c| LETTERS.contains(c) || "FT".contains(c))?;
    let before = ["\\,", "\\ ", "\\;", "~", " "]
        .iter()
        .find_map(|space| number.strip_suffix(space))?;
    let bare = before
        .replace("\\times", "")
        .replace("\\cdot", "")
        .replace("\\frac", "");
    let is_number =
        bare.contains(|c: char| c.is_ascii_digit()) && !bare.contains(|c: char| c.is_alphabetic() || "=<>".contains(c));
    (is_number && !bare.contains(", ") && before.matches('$').count().is_multiple_of(2)).then_some(before)
}

/// Chinese units after a number. Words of scale (`万`, `亿`, `倍`) are left out, because they change
/// the number.
const HAN: [&str; 57] = [
    "米",
    "厘米",
    "分米",
    "毫米",
    "千米",
    "公里",
    "克",
    "毫克",
    "千克",
    "公斤",
    "斤",
    "吨",
    "升",
    "毫升",
    "元",
    "块",
    "角",
    "分",
    "美元",
    "秒",
    "秒钟",
    "分钟",
    "小时",
    "时",
    "天",
    "日",
    "周",
    "星期",
    "月",
    "个月",
    "年",
    "岁",
    "度",
    "个",
    "人",
    "名",
    "位",
    "次",
    "种",
    "本",
    "只",
    "条",
    "件",
    "张",
    "棵",
    "台",
    "辆",
    "头",
    "朵",
    "平方米",
    "平方厘米",
    "平方千米",
    "立方米",
    "立方厘米",
    "米/秒",
    "千米/时",
    "千米/小时",
];

/// Chinese words before the name of what is counted: `18个苹果`.
const COUNTING: [&str; 14] = [
    "个", "只", "本", "名", "位", "条", "件", "张", "棵", "台", "辆", "头", "朵", "块",
];
/// Chinese signs that change a number, or join it to another.
const CHANGING: &str = "半万萬亿億千百十倍分之或和与及到至多余餘零以点一二两三四五六七八九";
/// Names of things that begin with a number: triangle, sandwich, quadrilateral, star, hexagon.
const NUMBERED: [&str; 5] = ["三角", "三明治", "四边", "五角", "六边"];

/// Returns true for a Chinese unit, or for what is counted.
pub(super) fn is_han_unit(word: &str) -> bool {
    let counted = COUNTING.iter().find_map(|counting| word.strip_prefix(counting));
    let plain = |name: &str| {
        let rest = NUMBERED.iter().find_map(|known| name.strip_prefix(known));
        !rest.unwrap_or(name).contains(|c| CHANGING.contains(c))
    };
    HAN.contains(&word) || counted.is_some_and(|name| name.chars().count() <= 4 && plain(name))
}
