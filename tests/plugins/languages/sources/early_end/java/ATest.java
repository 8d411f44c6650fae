class ATest {
  void testFirst() {}
  void testIt() { System.exit(0); }
}
