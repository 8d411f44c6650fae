"""Words of the general corpus: actions, objects and values with their synonyms.

Tool names and descriptions draw one synonym, requests another, so that a model that
is to choose the right tool must learn which words mean the same.
"""

# action: (verbs for tool names and requests; idioms, {o} is the object)
ACTIONS: dict[str, tuple[str, str]] = {
    "show": (
        "get show read view open fetch load retrieve display print inspect",
        "let me see {o}|pull up {o}|i want to look at {o}|give me {o}|bring up {o}|"
        "have a look at {o}|what does {o} say|what is in {o}|tell me what {o} holds|"
        "look at {o}|check what {o} contains|dump {o}|take a look inside {o}|"
        "what do we have in {o}|i need to see {o}|go through {o}|the contents of {o}|"
        "output {o}|walk me through {o}|grab {o}|let me have {o}|go over {o}",
    ),
    "create": (
        "create add make register insert build generate write new",
        "set up {o}|open up {o}|i need a new {n}: {o}|put in {o}|start {o}|"
        "there should be {o}|draw up {o}|we need {o}|prepare {o}|come up with {o}",
    ),
    "delete": (
        "delete remove drop erase discard purge clear wipe",
        "get rid of {o}|throw away {o}|{o} can go|take {o} out|trash {o}|kill {o}|"
        "i do not need {o} any more|we no longer need {o}|scrap {o}|cut {o}",
    ),
    "update": (
        "update edit change modify alter revise amend adjust correct",
        "make a change to {o}|fix up {o}|bring {o} up to date|touch up {o}|rewrite {o}|"
        "rework {o}|{o} needs a change|patch {o}|tweak {o}|swap it in {o}",
    ),
    "rename": ("rename relabel retitle", "give {o} another name|call {o} differently"),
    "move": (
        "move transfer shift migrate",
        "put {o} elsewhere|bring {o} over|carry {o} over",
    ),
    "copy": ("copy duplicate clone mirror", "make a copy of {o}|make another {o}"),
    "cancel": (
        "cancel abort void revoke withdraw",
        "call off {o}|i do not want {o} any more|stop {o}|please do not go on with {o}|"
        "forget about {o}|back out of {o}|undo {o}",
    ),
    "send": (
        "send mail deliver dispatch forward post",
        "pass {o} on|get {o} out|ship {o} over",
    ),
    "schedule": (
        "schedule book reserve plan arrange",
        "put {o} on the calendar|fix a date for {o}|set a time for {o}|pencil in {o}",
    ),
    "pay": (
        "pay settle charge bill",
        "take care of the payment of {o}|transfer the money for {o}",
    ),
    "refund": (
        "refund repay credit compensate",
        "give the money back for {o}|send the money back for {o}|money back for {o}|"
        "i want my money back for {o}|return the payment of {o}|pay back {o}",
    ),
    "return": (
        "return",
        "send {o} back|take {o} back|bring {o} back|i am sending {o} back",
    ),
    "approve": (
        "approve accept confirm sign",
        "give the green light to {o}|say yes to {o}|let {o} pass|{o} is fine, let it through",
    ),
    "reject": (
        "reject decline refuse deny",
        "say no to {o}|turn down {o}|do not let {o} through",
    ),
    "assign": (
        "assign allocate give delegate",
        "hand {o} over|let someone take {o}|put someone on {o}",
    ),
    "close": (
        "close resolve finish complete",
        "{o} is done, close it|wrap up {o}|mark {o} as done|that settles {o}",
    ),
    "reopen": (
        "reopen resume",
        "{o} is not solved yet|bring {o} back to life|take up {o} again",
    ),
    "lock": (
        "lock block freeze suspend",
        "nobody should get into {o}|shut off access to {o}|put a hold on {o}",
    ),
    "unlock": (
        "unlock unblock release activate",
        "let people into {o} again|lift the block on {o}|free {o}",
    ),
    "run": (
        "run execute start launch trigger invoke",
        "kick off {o}|fire up {o}|get {o} going|give {o} a run|set {o} in motion|"
        "let {o} run|try {o} out|go ahead with {o}|give {o} a go|start up {o}|play {o} through",
    ),
    "stop": (
        "stop halt pause end",
        "shut down {o}|bring {o} to a stop|turn {o} off|put {o} to rest",
    ),
    "restart": (
        "restart reboot reset reload",
        "turn {o} off and on again|give {o} a fresh start|bounce {o}|cycle {o}",
    ),
    "check": (
        "check test verify validate probe assess",
        "see if {o} is ok|make sure {o} works|is {o} in order|does {o} still work|"
        "is {o} all right|find out whether {o} passes|see whether {o} is fine|"
        "make certain {o} holds|is everything fine with {o}|put {o} to the test|double-check {o}",
    ),
    "analyze": (
        "lint analyze audit review diagnose scan",
        "look for problems in {o}|any warnings in {o}|go over {o} for mistakes|"
        "is there anything wrong with {o}|find style problems in {o}|what is bad about {o}|"
        "report issues in {o}|do a quality check of {o}|complain about {o}|point out flaws in {o}",
    ),
    "format": (
        "format tidy clean beautify normalize arrange",
        "make {o} look neat|clean up the layout of {o}|fix the spacing of {o}|"
        "pretty-print {o}|bring {o} into shape|tidy up {o}|straighten out {o}|reformat {o}|"
        "put the layout of {o} in order|polish the look of {o}|restyle {o}",
    ),
    "export": (
        "export save download extract",
        "get {o} out as a copy|store {o} outside|take {o} out of the system",
    ),
    "import": ("import upload ingest", "bring {o} in|feed in {o}|take in {o}"),
    "share": (
        "share publish expose",
        "let others see {o}|make {o} visible|give access to {o}",
    ),
    "archive": (
        "archive store shelve stash",
        "put {o} into storage|keep {o} but out of sight|file {o} away",
    ),
    "restore": (
        "restore recover revert rollback",
        "bring back {o}|go back to the old {n} {o}|undo the changes of {o}|get {o} back",
    ),
    "translate": (
        "translate localize",
        "put {o} into another language|i need {o} in another language",
    ),
    "convert": (
        "convert transform turn",
        "make something else of {o}|change the type of {o}",
    ),
    "count": (
        "count tally sum total",
        "how many are in {o}|what is the number for {o}|how big is {o}|number of {o}",
    ),
    "compare": (
        "compare diff contrast",
        "what differs in {o}|show the differences for {o}|how does {o} differ",
    ),
    "summarize": (
        "summarize describe explain outline",
        "give me the gist of {o}|in short, what is {o}|sum up {o}|what is {o} about|brief me on {o}",
    ),
    "rate": (
        "rate score grade rank evaluate",
        "how good is {o}|give {o} marks|judge {o}",
    ),
    "subscribe": (
        "subscribe follow watch monitor",
        "keep me posted on {o}|keep an eye on {o}|tell me about news of {o}",
    ),
    "deploy": (
        "deploy release ship install",
        "roll out {o}|put {o} live|bring {o} to production|get {o} out there",
    ),
    "merge": ("merge combine join unite", "put {o} together|bring {o} into one"),
    "split": (
        "split divide separate",
        "break {o} apart|cut {o} into parts|take {o} apart",
    ),
    "sort": ("sort order sequence", "put {o} in order|line up {o}"),
    "sync": (
        "sync refresh synchronize",
        "bring {o} in line|get the latest for {o}|make {o} match",
    ),
    "backup": ("backup snapshot", "keep a safe copy of {o}|save a spare of {o}"),
    "tag": ("tag label mark flag", "put a label on {o}|stick a tag on {o}"),
    "comment": (
        "comment annotate reply answer",
        "say something on {o}|leave a remark on {o}|write back on {o}",
    ),
    "notify": (
        "notify alert inform warn remind",
        "let them know about {o}|tell people about {o}|drop a line about {o}|give a heads-up on {o}",
    ),
    "escalate": (
        "escalate raise promote",
        "get a human for {o}|take {o} to a manager|hand {o} to someone senior|this needs a supervisor: {o}",
    ),
    "identify": (
        "authenticate identify",
        "prove who is behind {o}|check the identity for {o}",
    ),
    "track": (
        "track trace follow_up locate",
        "where is {o}|where is {o} now|how far along is {o}|when will {o} arrive|has {o} moved|status of {o}",
    ),
    "measure": (
        "measure sample gauge",
        "take a reading of {o}|what is the level of {o}|how is {o} doing",
    ),
    "clean": ("flush sweep prune", "make {o} empty|get the dust out of {o}"),
    "encrypt": ("encrypt protect secure", "make {o} safe|put {o} under protection"),
    "invite": ("invite enroll admit", "let {o} join|bring {o} on board|ask {o} in"),
    "order": (
        "buy purchase acquire",
        "get us {o}|i would like to have {o}|put {o} in the cart",
    ),
    "ping": (
        "ping poke contact call",
        "see if {o} answers|reach out to {o}|get in touch with {o}",
    ),
    "increase": (
        "increase raise boost extend",
        "make {o} bigger|turn up {o}|give {o} more",
    ),
    "decrease": (
        "decrease reduce lower shrink",
        "make {o} smaller|turn down {o}|give {o} less",
    ),
    "mute": ("mute silence hide", "make {o} quiet|i do not want to hear from {o}"),
}

# object: (nouns; kinds of reference)
OBJECTS: dict[str, tuple[str, str]] = {
    "order": ("order purchase", "id num"),
    "invoice": ("invoice bill receipt", "id num"),
    "ticket": ("ticket issue case complaint", "id num"),
    "customer": ("customer client buyer shopper", "id person email"),
    "account": ("account profile login", "id person email"),
    "file": ("file document source", "path"),
    "folder": ("folder directory", "dir"),
    "note": ("note memo", "id title"),
    "report": ("report overview", "id title path"),
    "meeting": ("meeting appointment session", "id title"),
    "room": ("room hall office", "name num"),
    "flight": ("flight trip", "code"),
    "hotel": ("hotel stay", "name"),
    "car": ("car vehicle van", "code name"),
    "sensor": ("sensor probe meter", "id name"),
    "server": ("server machine host node", "host"),
    "container": ("container image", "host name"),
    "job": ("job task chore", "id num ident"),
    "pipeline": ("pipeline build workflow", "ident num"),
    "branch": ("branch fork", "ident"),
    "commit": ("commit revision change", "hash"),
    "package": ("package library module dependency", "ident"),
    "test": ("test suite spec", "ident path"),
    "function": ("function method routine", "ident"),
    "class": ("class type model", "ident"),
    "script": ("script program tool", "path ident"),
    "log": ("log journal trace", "path host"),
    "table": ("table database sheet", "ident"),
    "record": ("record row entry", "id num"),
    "password": ("password secret", "email person"),
    "key": ("key token", "hash ident"),
    "photo": ("photo picture image", "path title"),
    "song": ("song tune track", "title"),
    "playlist": ("playlist mix", "title"),
    "video": ("video clip film", "title id"),
    "recipe": ("recipe dish meal", "title"),
    "product": ("product item article", "id title code"),
    "shipment": ("shipment parcel delivery consignment", "id code"),
    "address": ("address location", "person id"),
    "payment": ("payment transaction transfer", "id num"),
    "subscription": ("subscription plan membership", "id person"),
    "coupon": ("coupon voucher discount", "code"),
    "contract": ("contract agreement deal", "id title"),
    "employee": ("employee worker colleague", "person id"),
    "team": ("team group crew", "name ident"),
    "project": ("project initiative", "ident title"),
    "message": ("message mail letter", "id"),
    "contact": ("contact person", "person email"),
    "reminder": ("reminder alarm", "title id"),
    "event": ("event party", "title id"),
    "light": ("light lamp", "name"),
    "door": ("door gate", "name"),
    "thermostat": ("thermostat heating", "name"),
    "pump": ("pump valve motor", "name code"),
    "robot": ("robot drone", "name code"),
    "printer": ("printer scanner", "name host"),
    "camera": ("camera webcam", "name"),
    "route": ("route path way", "name code"),
    "station": ("station stop terminal", "name"),
    "seat": ("seat place", "code"),
    "course": ("course class lesson", "title code"),
    "student": ("student pupil", "person id"),
    "exam": ("exam quiz", "title id"),
    "book": ("book novel title", "title"),
    "patient": ("patient case", "person id"),
    "prescription": ("prescription medicine", "id"),
    "setting": ("setting option flag", "ident"),
    "page": ("page article post", "title num"),
    "cache": ("cache buffer", "ident host"),
    "queue": ("queue backlog", "ident"),
    "cluster": ("cluster grid", "host name"),
    "dataset": ("dataset data collection", "path ident"),
    "endpoint": ("endpoint route api", "path ident"),
    "line": ("line statement", "num"),
    "config": ("config configuration settings", "path"),
    "license": ("license permit", "code"),
    "claim": ("claim request application", "id num"),
    "loan": ("loan credit", "id num"),
    "sample": ("sample specimen", "code id"),
    "box": ("box crate bin", "code num"),
    "machine": ("machine engine device", "code name"),
}

# argument: (schema names; kind; mentions, {} is the value)
ARGUMENTS: dict[str, tuple[str, str, str]] = {
    "priority": (
        "priority urgency level importance",
        "enum:low,medium,high,urgent",
        "with {} priority|priority {}|it is {}|treat it as {}|this is {} priority",
    ),
    "severity": (
        "severity impact",
        "enum:minor,major,critical",
        "it is {}|severity {}|a {} one|with {} impact",
    ),
    "limit": (
        "limit max_results count top",
        "int",
        "at most {}|no more than {}|only the first {}|limit it to {}|{} will do|up to {}",
    ),
    "recipient": (
        "recipient to receiver email send_to",
        "email",
        "to {}|send it to {}|it goes to {}|{} should get it|for {}",
    ),
    "assignee": (
        "assignee owner user person responsible",
        "person",
        "for {}|{} should do it|it belongs to {}|{} takes it|owner is {}",
    ),
    "reason": (
        "reason cause why explanation",
        "text",
        "because {}|the reason is {}|reason: {}|since {}|due to {}",
    ),
    "amount": (
        "amount value price sum",
        "float",
        "for {} euros|amount {}|worth {}|{} in total|the amount is {}",
    ),
    "quantity": (
        "quantity units pieces number",
        "int",
        "{} of them|quantity {}|{} pieces|{} units|make that {}",
    ),
    "date": (
        "date day when on_date",
        "date",
        "on {}|for {}|dated {}|the date is {}|by {}",
    ),
    "time": (
        "time at hour start_time",
        "time",
        "at {}|starting at {}|{} is fine|from {} on",
    ),
    "title": (
        "title name label subject headline",
        "text",
        "called {}|named {}|with the title {}|title {}|the name is {}",
    ),
    "new_name": (
        "new_name target_name to",
        "ident",
        "to {}|the new name is {}|it should be {}|call it {}|as {}",
    ),
    "value": (
        "value new_value content setting",
        "ident",
        "to {}|set it to {}|the value is {}|make it {}|new value {}",
    ),
    "notify": (
        "notify send_mail inform",
        "bool",
        "and notify them|and send a mail|let everybody know/without telling anyone|do not notify them|no mail please",
    ),
    "dry_run": (
        "dry_run simulate preview",
        "bool",
        "as a dry run|only simulate it|just pretend/for real|no dry run|really do it",
    ),
    "recursive": (
        "recursive deep include_children",
        "bool",
        "recursively|including everything below|with all children/only the top|without children|not recursively",
    ),
    "force": (
        "force override overwrite",
        "bool",
        "force it|even if it complains|overwrite if needed/do not force it|gently|stop if it complains",
    ),
    "verbose": (
        "verbose details full",
        "bool",
        "with all details|be verbose|in full/without details|keep it brief|not verbose",
    ),
    "format": (
        "format output_format file_type",
        "enum:json,csv,pdf,xml,html",
        "as {}|in {} format|{} please|i want {}",
    ),
    "language": (
        "language lang locale",
        "enum:english,german,french,spanish,italian",
        "in {}|to {}|into {}|language {}",
    ),
    "color": (
        "color shade",
        "enum:red,green,blue,white,black",
        "in {}|{} please|the {} one|color {}",
    ),
    "size": (
        "size dimension",
        "enum:small,medium,large",
        "size {}|the {} one|a {} one|in {}",
    ),
    "status": (
        "status state phase",
        "enum:open,pending,closed,done,failed",
        "with status {}|that is {}|state {}|status {}",
    ),
    "environment": (
        "environment env stage",
        "enum:dev,staging,production",
        "in {}|on {}|for {}|environment {}",
    ),
    "path": (
        "path file file_path destination",
        "path",
        "in {}|into {}|at {}|the file is {}|under {}",
    ),
    "folder": (
        "folder directory root dir",
        "dir",
        "in {}|under {}|inside {}|the folder is {}",
    ),
    "line": (
        "line line_number row",
        "int",
        "at line {}|line {}|on line {}|it is line {}",
    ),
    "tag": (
        "tag label keyword topic",
        "word",
        "tagged {}|with tag {}|label {}|keyword {}",
    ),
    "city": ("city town place location", "city", "in {}|to {}|at {}|from {}"),
    "percent": (
        "percent percentage share",
        "int",
        "{} percent|by {} percent|at {} percent",
    ),
    "days": (
        "days period duration",
        "int",
        "for {} days|{} days|over {} days|within {} days",
    ),
    "minutes": (
        "minutes timeout wait delay",
        "int",
        "{} minutes|for {} minutes|after {} minutes",
    ),
    "message": (
        "message text body note comment content",
        "text",
        "saying {}|with the text {}|the message is {}|write {}",
    ),
    "code": (
        "code reference ref",
        "code",
        "with code {}|code {}|reference {}|using {}",
    ),
    "phone": ("phone number mobile", "phone", "phone {}|number {}|reachable at {}"),
    "temperature": (
        "temperature degrees",
        "float",
        "at {} degrees|{} degrees|to {} degrees",
    ),
    "host": ("host server machine target", "host", "on {}|at {}|host {}|target {}"),
    "version": (
        "version release tag",
        "version",
        "version {}|at version {}|release {}|{} please",
    ),
}
