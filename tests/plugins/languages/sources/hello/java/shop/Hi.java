package shop;
class Hi {
  static void hi(String name) { System.out.println("hi " + name); }
}
