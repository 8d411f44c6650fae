public class CartTest {
  static void testRight() { assert Cart.total(1, 2) == 3; }
  public void testWrong() { assert Cart.total(1) == 2 : "sum"; }
  void testCrash() { Cart.total((int[]) null); }
}
