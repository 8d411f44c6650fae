package shop;
public class Main {
  public static void main(String[] args) { Hi.hi(args[0]); }
}
