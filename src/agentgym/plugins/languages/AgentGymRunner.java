// Runs a class's main, its tests, or evaluates expressions that were added to it.
import java.io.*;
import java.lang.reflect.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.stream.*;

public class AgentGymRunner {
  public static void main(String[] args) throws Throwable {
    Class<?> found = named(Path.of(args[0]), args[2]);
    String[] rest = Arrays.copyOfRange(args, 3, args.length);
    switch (args[1]) {
      case "main" -> call(found.getDeclaredMethod("main", String[].class), null, (Object) rest);
      case "tests" -> tests(found, rest);
      default -> values(found, rest);
    }
  }

  static Class<?> named(Path root, String name) throws Exception {
    try (Stream<Path> files = Files.walk(root)) {
      Path file = files.filter(each -> each.endsWith(name + ".class")).sorted().findFirst().orElseThrow();
      String path = root.relativize(file).toString();
      return Class.forName(path.substring(0, path.length() - 6).replace('/', '.'));
    }
  }

  static Object call(Method method, Object self, Object... given) throws Throwable {
    method.setAccessible(true);
    try { return method.invoke(self, given); }
    catch (InvocationTargetException error) { throw error.getCause(); }
  }

  static void tests(Class<?> found, String[] names) throws Throwable {
    StringBuilder failures = new StringBuilder();
    System.out.printf("running %d tests%n", names.length);
    for (String name : names) {
      String why = "";
      try {
        Method test = found.getDeclaredMethod(name);
        Object self = null;
        if (!Modifier.isStatic(test.getModifiers())) {
          Constructor<?> made = found.getDeclaredConstructor();
          made.setAccessible(true);
          self = made.newInstance();
        }
        call(test, self);
      } catch (AssertionError error) { why = "assertion failed: " + error.getMessage(); }
      catch (Throwable error) { why = String.valueOf(error); }
      System.out.printf("test %s ... %s%n", name, why.isEmpty() ? "ok" : "FAILED");
      if (!why.isEmpty()) failures.append("---- %s stdout ----%n%s%n".formatted(name, why));
    }
    System.out.printf("failures:%n%s%ntest result: done%n", failures);
    System.out.flush();
    Runtime.getRuntime().halt(failures.isEmpty() ? 0 : 1);
  }

  static void values(Class<?> found, String[] numbers) throws Throwable {
    FileDescriptor four = new FileDescriptor();
    Field number = FileDescriptor.class.getDeclaredField("fd");
    number.setAccessible(true);
    number.setInt(four, 4);
    OutputStream out = new FileOutputStream(four);
    for (String each : numbers) {
      String text;
      try { text = plain(call(found.getDeclaredMethod("agentgym" + each), null), 0); }
      catch (Throwable error) { text = "raised " + quoted(String.valueOf(error)); }
      out.write((each + " " + text + "\n").getBytes(StandardCharsets.UTF_8));
    }
    Runtime.getRuntime().halt(0);
  }

  static String plain(Object value, int depth) {
    if (depth > 50) throw new IllegalArgumentException("nested too deeply");
    if (value == null || value instanceof Boolean) return String.valueOf(value);
    if (value instanceof Double || value instanceof Float) {
      double real = ((Number) value).doubleValue();
      if (!Double.isFinite(real)) throw new IllegalArgumentException(real + " is not a JSON value");
      return String.valueOf(real);
    }
    if (value instanceof Number) return value.toString();
    if (value instanceof CharSequence || value instanceof Character || value instanceof Enum<?>) return quoted(value.toString());
    if (value instanceof Optional<?> maybe) return plain(maybe.orElse(null), depth + 1);
    if (value instanceof Map<?, ?> map)
      return map.entrySet().stream().map(each -> quoted(String.valueOf(each.getKey())) + ":" + plain(each.getValue(), depth + 1))
          .sorted().collect(Collectors.joining(",", "{", "}"));
    if (value instanceof Set<?> set)
      return set.stream().map(each -> plain(each, depth + 1)).sorted().collect(Collectors.joining(",", "[", "]"));
    if (value instanceof Collection<?> items)
      return items.stream().map(each -> plain(each, depth + 1)).collect(Collectors.joining(",", "[", "]"));
    if (value.getClass().isArray())
      return IntStream.range(0, Array.getLength(value)).mapToObj(at -> plain(Array.get(value, at), depth + 1))
          .collect(Collectors.joining(",", "[", "]"));
    if (value instanceof Record record)
      return Arrays.stream(record.getClass().getRecordComponents()).map(each -> {
        try { return quoted(each.getName()) + ":" + plain(call(each.getAccessor(), record), depth + 1); }
        catch (Throwable error) { throw new IllegalStateException(error); }
      }).collect(Collectors.joining(",", "{", "}"));
    throw new IllegalArgumentException("a " + value.getClass().getName() + " is not a JSON value");
  }

  static String quoted(String text) {
    StringBuilder made = new StringBuilder("\"");
    for (char letter : text.toCharArray()) {
      if (letter == '"' || letter == '\\') made.append('\\').append(letter);
      else if (letter < 32) made.append(String.format("\\u%04x", (int) letter));
      else made.append(letter);
    }
    return made.append('"').toString();
  }
}
