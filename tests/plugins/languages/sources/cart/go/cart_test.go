package cart

import "testing"

func TestRight(t *testing.T) {
	if Total([]int{1, 2}) != 3 {
		t.Fatal()
	}
}
func TestWrong(t *testing.T) { t.Errorf("sum") }
func TestCrash(t *testing.T) {
	var m map[int]int
	m[1] = 1
}
