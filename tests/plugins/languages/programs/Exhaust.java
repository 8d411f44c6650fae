import java.io.*;
import java.util.*;

class Exhaust {
  static boolean slept(String time) {
    try { new ProcessBuilder("sleep", time).start(); return true; }
    catch (IOException error) { return false; }
  }
  public static void main(String[] words) throws IOException {
    List<byte[]> held = new ArrayList<>();
    if (words[0].equals("loop")) { System.out.println("begun"); for (;;) Thread.onSpinWait(); }
    if (words[0].equals("memory")) for (;;) held.add(new byte[16 << 20]);
    if (words[0].equals("file"))
      try (OutputStream file = new FileOutputStream("big")) { for (;;) file.write(new byte[1 << 20]); }
    if (words[0].equals("output")) for (;;) System.out.print("x".repeat(5000));
    if (words[0].equals("daemon") && !slept(words[1])) System.out.println("refused");
    if (words[0].equals("processes")) {
      int count = 0;
      while (count < 400 && slept("30")) count++;
      System.out.print(count);
    }
  }
}
