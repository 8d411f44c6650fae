import java.io.*;
import java.net.*;
import java.nio.file.*;
import java.util.concurrent.Callable;

class Escape {
  static void attempt(Callable<?> call) {
    try { System.out.println("REACHED " + call.call()); }
    catch (Exception error) { System.out.println("refused " + error); }
  }
  public static void main(String[] words) {
    Path folder = Path.of(words[0]);
    attempt(() -> Files.writeString(folder.resolve("written"), "x"));
    attempt(() -> Files.createDirectory(folder.resolve("made")));
    attempt(() -> { Files.delete(folder.resolve("victim")); return ""; });
    attempt(() -> Files.move(folder.resolve("secret"), Path.of("stolen")));
    for (String path : new String[] {"/usr/x", "/etc/x", "/dev/x", "/root/x"})
      attempt(() -> Files.writeString(Path.of(path), "x"));
    attempt(() -> Files.readString(folder.resolve("secret")));
    attempt(() -> Files.readString(Path.of("/etc/shadow")).length());
    StringBuilder seen = new StringBuilder(System.getenv().toString());
    for (String pid : new String[] {"1", "self"}) {
      try { seen.append(Files.readString(Path.of("/proc/" + pid + "/environ"))); }
      catch (IOException error) { }
    }
    System.out.println(seen.indexOf("hunter2") >= 0 ? "REACHED" : "refused");
    attempt(() -> new ServerSocket(0));
    attempt(() -> new DatagramSocket(0));
  }
}
