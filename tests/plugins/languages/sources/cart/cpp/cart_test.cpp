#include <cassert>
#include <vector>
int total(const std::vector<int>& prices);
void test_right() { assert(total({1, 2}) == 3); }
void test_wrong() { assert(total({1}) == 2 && "sum"); }
void test_crash() { *(volatile int*)nullptr = 1; }
