"""Names, plain words and manners of speech that the corpus draws from."""

# Words and names that occur nowhere in the corpus; tests and the gate use them.
HELD_OUT_WORDS = frozenset(
    "peruse obtain eliminate relocate terminate reimburse commence examine "
    "parchment cargo gadget dwelling patron".split()
)
HELD_OUT_PEOPLE = frozenset(
    "Okafor Lindqvist Marchetti Tanaka Novak Haddad Petrov Castillo".split()
)

FIRST_NAMES = """Anna Ben Carla David Elena Felix Greta Hugo Jonas Kira Leo Maria Nina
Oscar Paula Quinn Rosa Simon Tara Uwe Vera Walter Xenia Yusuf Zoe Alba Bruno Clara Dario
Emil Fatima Gustav Hanna Ivan Julia Karim Lena Marco Noor Olga Pavel Rita Samir Tomas Una
Victor Wanda Yara Zeno Amir Bella Chen Dina Erik Freya Goran Heidi Imani Jack""".split()
LAST_NAMES = """Berg Costa Dahl Evans Fischer Garcia Hansen Ito Jansen Keller Lopez Moreau
Nowak Olsen Peters Quist Rossi Silva Tamm Urban Vogel Weber Young Zeller Abbas Baker Clarke
Duarte Engel Ferrari Huber Ivanov Jensen Kumar Larsen Meyer Nolan Ortiz Park Reyes
Schmidt Torres Ueda Varga Wolf Yilmaz Zhang""".split()
CITIES = """Berlin Oslo Paris Lyon Madrid Porto Rome Milan Vienna Graz Zurich Basel Prague Brno
Warsaw Gdansk Dublin Cork London Leeds Boston Denver Austin Tokyo Osaka Seoul Lima Cairo
Nairobi Accra Delhi Pune Sydney Perth""".split()
PLAIN = """alpha amber anchor apple arrow atlas autumn badge basin beacon birch bishop blaze
bloom bridge bronze brook canal candle canyon cedar chalk cliff cobalt
copper coral crane crown crystal delta desert feather
field flint forest garnet ginger glacier globe granite
honey indigo iron island jade jasper juniper kettle lantern lark lemon linen
lotus marble meadow mint mosaic moss nickel north oak ocean olive onyx
opal orbit orchid oyster palm pearl pebble pepper pine planet plum pollen poppy prism
quarry quill reef ridge river robin rocket ruby saddle saffron sage
sand satin shell shore sierra silver slate snow solar sparrow spice spruce star steel stone
storm summit sunset swan teal thistle thunder timber topaz torch trail tundra
valley velvet violet wave willow winter wolf zenith zephyr""".split()
CODE_WORDS = """add append apply batch bound build cache calc call cap cart cell chain check chunk clamp
clean clip close collect column compute config convert copy count cost create cut data date
day decode delay delta depth diff discount distance divide drop edge encode entry error
event even factor fee fetch field file fill filter find first fix flag flat flush fold
format frame gap gather get grade grid group guard hash head height hour index init invert
item join key label last latest layer left length level limit line link list load lock log
lower make map mark mask match max mean median merge min mix mode move name net next node
normalize offset order pack pad page pair parse part pass path peak pick pop price print
queue quota range rank rate ratio read record reduce remove rename repeat reset result
reverse right room rotate round row run sample save scale scan score search seat send set
shape share shift shop size skip slice slot slug sort space span split stack start state
step stock stop strip sum swap table tag take task tax temp text tile time title token
total track trim turn type unit update user value wait weight width window word wrap
write year zero zone""".split()
EXTENSIONS = "py txt md json csv yaml toml log cfg ini html js sh sql".split()
REASONS = """it arrived broken|the box was damaged|it is too small|it is the wrong color|i changed my mind|
it came too late|it was ordered twice|the price is wrong|it does not work|somebody made a typo|
the customer asked for it|the deadline moved|it is out of date|we found a better one|it is a duplicate|
the disk is full|the build is red|the tests fail|nobody uses it|the data is stale|it was a mistake""".replace(
    "\n", ""
).split("|")

OPENERS = """|||||please |please |can you |could you |would you |i need you to |i want you to |i would like you to |
hi, |hello, |hey, |hi there, can you |now |next, |ok, |quick one: |one thing: |we have to |let us |
help me: |time to |go and |just |kindly |if you can, |for me: |when you get a chance, |you should |
i would be glad if you could |do me a favor and |your job: |task: |todo: |could you please |can you please |
would you mind, |first of all, |be so kind and """.replace("\n", "").split("|")
CLOSERS = """||||||||| please| thanks| thank you| for me| now| right away| if you can| when you can|, thanks|, please|
 as soon as possible|, would you| today|, that is all""".replace("\n", "").split("|")
DONE = "Done.|Done.|Done.|Done.|All done.|It is done.|Finished.".split("|")
GIVEN_UP = """I could not do it.|Sorry, I could not do that.|That did not work.|It failed, sorry.|
I could not find it.|Sorry, I cannot find that.""".replace("\n", "").split("|")
SYSTEMS = """You are a helpful assistant.|You are an assistant with tools.|Use the tools to help the user.|
You help people at {x}. Use the tools.|You are the {x} assistant.|Answer with tool calls where they help.|
You work for {x}. Be brief.|Be brief and exact.|You are an operator at {x}.|Use one tool at a time.|
You are an agent for {x}. Solve the user's request with the tools.|""".replace(
    "\n", ""
).split("|")
RULES = """Confirm nothing twice.|Keep answers short.|Never guess an id.|Look things up before you change them.|
Ask if something is missing.|Do not call tools that are not needed.|Stop when the work is done.|
Amounts are in euros.|Dates are written as year-month-day.|Report errors honestly.|
Read before you write.|Check your work at the end.|Never touch what you were not asked about.""".replace(
    "\n", ""
).split("|")
REFUSALS = "I cannot do that with my tools.|Sorry, none of my tools can do that.|I have no tool for that.".split(
    "|"
)
SMALL_TALK = """thanks!>You are welcome.|thank you, that is all>You are welcome.|hello>Hello! How can I help?|
good morning>Hello! How can I help?|great, bye>Goodbye.|that is all for today>Goodbye.|who are you?>I am an assistant with tools.|
never mind>All right.|sorry, wrong window>All right.|perfect>You are welcome.""".replace(
    "\n", ""
).split("|")
OFF_TOPIC = """tell me a joke|what is the meaning of life|sing me a song|who won the game last night|
write a poem about the sea|what should i eat tonight|do you like music|how old are you|
is it going to rain|what is the capital of france|tell me a story|recommend a good film""".replace(
    "\n", ""
).split("|")
EXTRA_WORDS = """a about above after again all also always an and another any anything are as ask asked at back be
because been before being below between both but by call called can cannot change changed check code complete
contains could day default describe did different do does done each either else empty end english error even every
everything exactly expected failed false file files find first fix fixed folder following for found from full function
give go good got had has have having help her here him his how i id if in information inside instead into is issue it its
just keep know last latest leave left less let line lines list long look make many may me mean member message might
missing more most must my name need needs never new next no none not nothing now number of off ok old on once one only
open or order other otherwise our out over own part passed passes path place please problem put rather read really
reason result results return returns right rule run running same say see set should show since so some something
start state still stop string such sure take tell test tests text than that the their them then there these they thing
this those time to too tool tools true try twice two type under unknown until up us use used user uses using valid value
values very want was way we well were what when where whether which while who why will with without work works would
wrong yes yet you your module package source project script lint linter style layout spacing whitespace indentation
bug fault broken repair failing passing suite behaviour behavior docstring comment import imports variable constant
argument parameter parameters replace replaced replacing word phrase text occurs occurrences mention mentions mentioned
defined definition definitions declared used reference references appear appears contain search looking somewhere
anywhere across whole entire tree workspace repository repo codebase currently instead bare content contents exist
exists edit edited editing rename renamed execute executed executing report reports tidy neat clean verify confirm
green red pass fail fails afterwards finally sits lives living located holds called named titled top bottom
customer account orders item items shipment shipments refund refunds tracking address email phone number street city
delivered shipped processing cancelled pending amount total status reason broken damaged late money ticket agent
manager identity verified postcode""".split()
