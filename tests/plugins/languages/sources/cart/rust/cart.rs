pub fn total(prices: &[i64]) -> i64 { prices.iter().sum() }
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn right() { assert_eq!(total(&[1, 2]), 3) }
    #[test]
    fn wrong() { assert_eq!(total(&[1]), 2, "sum") }
    #[test]
    fn crash() { total(&Vec::new()[3..]); }
}
