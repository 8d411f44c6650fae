export const total = (prices: number[]): number =>
  prices.reduce((a, b) => a + b, 0);
