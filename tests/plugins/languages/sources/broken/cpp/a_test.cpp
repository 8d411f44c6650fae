void test_it() { nothing(); }
