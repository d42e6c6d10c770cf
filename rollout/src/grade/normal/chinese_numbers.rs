//! Reads whole numbers in Chinese words.

use super::wide::is_han;

/// Digits and words of scale in Chinese, with their values.
const HAN: [(char, u64); 18] = [
    ('零', 0),
    ('〇', 0),
    ('一', 1),
    ('二', 2),
    ('两', 2),
    ('三', 3),
    ('四', 4),
    ('五', 5),
    ('六', 6),
    ('七', 7),
    ('八', 8),
    ('九', 9),
    ('十', 10),
    ('百', 100),
    ('千', 1000),
    ('万', 10_000),
    ('萬', 10_000),
    ('亿', 100_000_000),
];
/// Most signs of the unit behind a Chinese number.
const MOST_SIGNS: usize = 4;

/// Returns the number that Chinese words spell, without their unit: `二十五`, `十八元`. A single
/// digit with a unit may be an article.
pub(super) fn in_chinese(text: &str) -> Option<u64> {
    // The first sign of a kilogram or kilometre is also a thousand.
    if ["千克", "千米"].iter().any(|unit| text.contains(unit)) {
        return None;
    }
    let value = |c: char| HAN.iter().find(|(known, _)| *known == c).map(|(_, value)| *value);
    let digits: Vec<u64> = text.chars().map_while(value).collect();
    let names = text.chars().skip(digits.len());
    let only_names = names
        .clone()
        .all(|c| is_han(c) && value(c).is_none() && !"分半多或余几的倍根平以次方阶乘".contains(c));
    if digits.is_empty() || !only_names || names.clone().count() > MOST_SIGNS {
        return None;
    }
    if digits.len() == 1 && names.count() > 0 {
        return None;
    }
    let (mut total, mut group, mut digit) = (0u64, 0u64, None);
    let (mut last_scale, mut zero) = (1, false);
    for value in digits {
        if value >= 10 {
            last_scale = value;
        }
        zero = value == 0 || (zero && value < 10);
        match value {
            0..10 if digit.is_some_and(|digit| digit > 0) => return None,
            0..10 => digit = Some(value),
            10 | 100 | 1000 => {
                group = group.checked_add(digit.take().filter(|digit| *digit > 0).unwrap_or(1) * value)?
            }
            _ => total = total.checked_add((group + digit.take().unwrap_or(0)).checked_mul(value)?)?,
        }
        if value >= 10_000 {
            group = 0;
        }
    }
    let ends = digit.unwrap_or(0);
    // `一万二` is 12,000, and `一万零二` 10,002.
    let short = ends > 0 && last_scale >= 100 && !zero;
    (!short).then_some(())?;
    total.checked_add(group)?.checked_add(ends)
}

#[cfg(test)]
mod tests {
    use super::in_chinese;

    #[test]
    fn chinese_words_have_their_values() {
        for (text, number) in [
            ("十", Some(10)),
            ("十八元", Some(18)),
            ("二百零五", Some(205)),
            ("一千二百三十四", Some(1234)),
            ("三万五千", Some(35_000)),
            ("二十多", None),
            ("十八的平方", None),
            ("二十倍", None),
            ("十八次方", None),
            ("十八阶乘", None),
            ("三千克", None),
            ("三十以下", None),
            ("一万二", None),
            ("一万零二", Some(10_002)),
            ("五", Some(5)),
            ("一个", None),
            ("三五", None),
            ("苹果", None),
        ] {
            assert_eq!(in_chinese(text), number, "{text}");
        }
    }
}
