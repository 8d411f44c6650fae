package cart

func Total(prices []int) (sum int) {
	for _, price := range prices {
		sum += price
	}
	return
}
