package a

import "testing"

func TestIt(t *testing.T) { nothing() }
