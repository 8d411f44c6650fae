#include <vector>
int total(const std::vector<int>& prices) {
  int sum = 0;
  for (int price : prices) sum += price;
  return sum;
}
int main() { return 1; }
