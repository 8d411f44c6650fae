"""What customers ask for; frames of train, validation, test, and unknown words."""

from agentgym.scenarios.coding.wording.grammar import Phrases

TRACK = Phrases(
    train=(
        "where is {order}?",
        "[track|locate|follow up on|look up|find] {order}",
        "[tell me|find out|say] [where|how far] {order} is",
        "[when will|when does] {order} [arrive|come]?",
        "has {order} been [shipped|delivered|sent]?",
        "what is the status of the delivery of {order}?",
        "I am still [waiting|looking] for {order}.",
        "[how far|how close] is {order}?",
        "{order} is [late|not here], where is it?",
        "I [want|need|would like] to know [where|how far] {order} is.",
        "[track|locate] the [parcel|delivery|shipment] of {order}",
        "where is the [parcel|delivery|shipment] of {order}?",
        "check [where|how far] {order} is",
    ),
    validation=(
        "check where the [parcel|delivery|shipment] of {order} is",
        "I am waiting for the [parcel|delivery|shipment] of {order}.",
        "find out how far the [parcel|delivery|shipment] of {order} is",
        "[has|when will] the [parcel|shipment] of {order} [arrive|come]?",
    ),
    test=(
        "look up where the [parcel|delivery|shipment] of {order} is",
        "follow up on the [parcel|delivery|shipment] of {order}",
        "I need to know when {order} will [arrive|come].",
        "tell me how far the [parcel|delivery|shipment] of {order} is",
        "the [parcel|delivery|shipment] of {order} is late, where is it?",
    ),
    out_of_vocabulary=(
        "[pinpoint|trace] the [whereabouts|itinerary] of {order}",
        "[is|has] {order} [en route|in transit|dispatched] already?",
        "[any news|any tidings] on the courier with {order}?",
        "which depot is {order} stuck in?",
        "[has the postman|has the carrier] picked {order} up?",
    ),
)

DETAILS = Phrases(
    train=(
        "[what is|what was] in {order}?",
        "[show me|pull up|open|get|look at|read] {order}",
        "[show me|give me|tell me|get] the [details|items|status] of {order}",
        "tell me about {order}",
        "[what is|what was] the [status|total|price] of {order}?",
        "[how much|what] [did i pay for|was] {order}?",
        "[which|what] items are in {order}?",
        "I [want|need] to see [the details of|] {order}.",
        "I [want|need] to know [what is in|the status of] {order}.",
        "look up the [details|items|status|total] of {order}",
    ),
    validation=(
        "pull up the [details|items|status|total] of {order}",
        "I want to see the [items|total|status] of {order}.",
        "tell me the [price|total] of {order}",
        "[open|read] the details of {order}",
        "I need to know what was in {order}.",
    ),
    test=(
        "look at the [details|items|status|total] of {order}",
        "I need to see the [items|total|price] of {order}.",
        "show me [what is|what was] in {order}",
        "I want to know the [total|price] of {order}.",
        "tell me which items are in {order}",
    ),
    out_of_vocabulary=(
        "[itemize|characterize|dissect] {order}",
        "[recap|expound] what {order} [consists of|comprises]",
        "[break down|enumerate] the [contents|goods] of {order}",
        "what did {order} set me back, roughly?",
    ),
)

STOCK = Phrases(
    train=(
        "[do you have|is there] [a|the|any] {product} in stock?",
        "[is|are] the {product} [available|in stock|sold out]?",
        "how many [of the {product}|{product} pieces] [are left|do you have]?",
        "can i [still|] buy [a|the] {product}?",
        "I would like [a|the] {product}, do you have it?",
        "[check|look up|tell me] [whether|if] the {product} is [available|in stock]",
        "[check|look up|find] the stock of the {product}",
        "any {product} left?",
        "I want to buy [a|the] {product}, is it [available|in stock]?",
    ),
    validation=(
        "check whether [a|any] {product} is [left|sold out]",
        "I want a {product}, do you [still|] have it in stock?",
        "[look up|tell me] how many of the {product} are left",
        "find the {product} in stock",
        "I would like to buy [a|the] {product}, is any left?",
        "tell me whether you [still|] have [a|the] {product}",
    ),
    test=(
        "look up whether [a|any] {product} is left",
        "I would like the {product}, is it [still|] available?",
        "[check|find] how many of the {product} you have",
        "is there still [a|the|any] {product} left?",
        "tell me if you [still|] have [a|the] {product}",
        "can i buy any {product} [still|]?",
    ),
    out_of_vocabulary=(
        "[does your warehouse|does your depot] [carry|hold] [a|any] {product}?",
        "[has the {product} run dry|are you bereft of {product}]?",
        "[ascertain|figure out] the inventory of the {product}",
        "[replenished|restocked] the {product} yet?",
        "is there supply of [a|the] {product}?",
    ),
)

HUMAN = Phrases(
    train=(
        "I want to [talk|speak] to a [human|person|manager|supervisor].",
        "[get me|give me|connect me with] a [human|person|manager|supervisor]",
        "let me [talk|speak] to [a human|a person|a manager|someone in charge]",
        "a real [person|human], please.",
        "this is enough, I want [your manager|your supervisor|a human].",
        "[hand me over|transfer me] to a [human|person|manager|supervisor]",
        "I [need|would like] a [human|person|manager|supervisor].",
    ),
    validation=(
        "I would like to [talk|speak] to a [person|human|manager|supervisor].",
        "[get me|connect me with] someone in charge",
        "this is enough, give me a [person|human|manager|supervisor]",
    ),
    test=(
        "I need to [talk|speak] to a [person|human|manager|supervisor].",
        "[hand me over|transfer me] to someone in charge",
        "connect me with [your manager|your supervisor|a real person]",
    ),
    out_of_vocabulary=(
        "[fetch|summon] [your boss|an employee|somebody senior]",
        "[no more bots|enough of robots], [an operator|a clerk] instead.",
        "[patch me through|forward me] to [an operator|a clerk|the team leader]",
    ),
)

LIST = Phrases(
    train=(
        "[what|which things] have i [ordered|bought]?",
        "[list|show me|give me|find] [my|all my|all of my] [orders|purchases]",
        "which orders do i have?",
        "[what|which orders] did i [buy|place|make] so far?",
        "give me my order history",
        "I [want|need|would like] to see [my|all my] [orders|purchases].",
        "tell me [what i have ordered|which orders i have]",
        "show me all that i have [ordered|bought]",
    ),
    validation=(
        "tell me [what i have bought|which purchases i have]",
        "[list|find|show me] my order history",
        "I want to know which [orders|purchases] i have.",
        "[list|show me|give me] all the [orders|purchases] i have",
    ),
    test=(
        "[which|what] purchases do i have so far?",
        "I [need|want] to see my order history.",
        "[list|find|give me] all that i have [ordered|bought]",
        "tell me all of my [orders|purchases]",
        "tell me what i bought so far",
        "find [out|] which orders i have so far",
    ),
    out_of_vocabulary=(
        "[compile|enumerate|recap] [my|every one of my] [acquisitions|transactions]",
        "[what goods|what stuff] [have|did] [i acquired|i obtain] from you?",
        "[summarize|outline] my shopping record",
    ),
)

COMPLAIN = Phrases(
    train=(
        'I want to complain[:|, it is about this:] "{subject}", priority {priority}.',
        '[open|make|create] a ticket: "{subject}", it is {priority}',
        '[record|make] a [complaint|case], {priority} priority: "{subject}"',
        'there is a problem, priority {priority}: "{subject}".',
        'report "{subject}" with {priority} priority',
        'I [want|need|would like] a ticket, "{subject}", priority {priority}.',
        '[open|create|make] a {priority} priority [ticket|case|complaint]: "{subject}"',
        '[report|record] a problem, "{subject}", it is {priority}',
        'I have a [complaint|problem], "{subject}", priority {priority}.',
    ),
    validation=(
        '[record|report] a {priority} priority [problem|complaint]: "{subject}"',
        'I [want|need] a {priority} priority ticket, "{subject}".',
        'I have a {priority} priority [problem|complaint]: "{subject}".',
        '[open|create|make] a [case|complaint], "{subject}", priority {priority}',
    ),
    test=(
        '[report|record] this problem, priority {priority}: "{subject}"',
        'I [want|need] to make a complaint, "{subject}", it is {priority}.',
        'I have a problem, it is {priority}: "{subject}".',
        '[create|make|open] a case with {priority} priority, "{subject}"',
        '[create|make|open] a complaint with {priority} priority: "{subject}"',
    ),
    out_of_vocabulary=(
        '[lodge|file|register] a {priority} [grievance|protest]: "{subject}"',
        '[jot down|log] my {priority} [annoyance|objection] that "{subject}"',
        'I am [furious|upset], "{subject}", urgency {priority}.',
    ),
)

CANCEL = Phrases(
    train=(
        "[cancel|stop|call off|withdraw|void] {order}",
        "I [want|need|would like] to [cancel|stop|withdraw] {order}.",
        "I do not want {order} any more.",
        "I no longer [want|need] {order}.",
        "{order} should not be sent.",
        "forget {order}, i changed my mind",
        "I ordered {order} by mistake.",
        "do not [send|ship] {order}",
        "I changed my mind about {order}, [cancel|stop|withdraw] it.",
        "[cancel|stop|void] {order}, i [do not want|no longer need] it any more",
        "[cancel|stop|call off] {order}, it was a mistake",
    ),
    validation=(
        "[cancel|withdraw|void] {order}, i ordered it by mistake",
        "I no longer want {order}, [cancel|stop|void] it.",
        "I changed my mind, do not [send|ship] {order}.",
        "[call off|withdraw] {order}, i no longer [want|need] it",
    ),
    test=(
        "[cancel|stop|void] {order}, i changed my mind",
        "I do not need {order} any more, [cancel|stop|withdraw] it.",
        "I ordered {order} by mistake, [cancel|stop|call off] it.",
        "I would like to [call off|void] {order}.",
        "{order} was a mistake, do not send it.",
    ),
    out_of_vocabulary=(
        "[scrap|abort|annul] {order}",
        "I am [having second thoughts|reconsidering], [scrap|annul] {order}.",
        "[back out of|abandon] {order} on my behalf",
        "I was too hasty with {order}, [scrap|revoke] it.",
    ),
)

ADDRESS = Phrases(
    train=(
        "[send|ship|deliver] {order} to {street} in {city}",
        "[send|ship|deliver] {order} to {street}, {city} [instead|]",
        "change the address of {order} to {street}[, {city}| in {city}]",
        "I moved: {order} should go to {street}[, {city}| in {city}].",
        "the new address for {order} is {street}, {city}.",
        "[update|set|change] the address for {order}: {street}, {city}",
        "{order} should [go|be sent|be delivered] to {street} in {city}.",
        "I [want|need] {order} at a new address: {street}, {city}.",
    ),
    validation=(
        "I moved, [send|ship|deliver] {order} to {street}, {city}.",
        "set the address of {order} to {street}[, {city}| in {city}]",
        "{order} should [go|be sent|be delivered] to {street}, {city} instead.",
        "I moved to {street}, {city}: change the address of {order}.",
        "[update|change] the address of {order}, it is {street} in {city}",
        "I need {order} [sent|delivered] to {street}, {city}.",
    ),
    test=(
        "I moved, [update|change|set] the address of {order}: {street}, {city}.",
        "I want {order} [sent|delivered] to {street} in {city}.",
        "[update|set] the address of {order}, it is now {street}, {city}",
        "[send|ship|deliver] {order} to my new address, {street} in {city}",
        "{order} goes to a new address: {street}, {city}.",
        "deliver {order} at {street} in {city}",
    ),
    out_of_vocabulary=(
        "[redirect|reroute|divert] {order} to {street}, {city}",
        "[relocate|forward] {order} toward {street} in {city}",
        "I [resettled|reside elsewhere]: {street}, {city} for {order}.",
        "my [residence|domicile] for {order} is {street}, {city} now.",
        "[amend|correct] the destination of {order}: {street}, {city}",
    ),
)

REFUND = Phrases(
    train=(
        "I want my money back for {order}.",
        "[refund|pay back] {order}",
        "[give me|get me|i want] [a refund|the money back|my money back] for {order}",
        "credit {order} to my card",
        "return the payment for {order}",
        "I was charged for {order}, pay it back.",
        "money back for {order}, please.",
        "I [want|need|would like] a refund for {order}.",
        "refund [the total|the payment|the price] of {order}",
        "[pay|give] me back [the total|the price|the money] of {order}",
        "I paid for {order} and [want|need] my money back.",
    ),
    validation=(
        "pay back [the total|the payment|the price] of {order}",
        "I would like [my money|the money|the payment] back for {order}.",
        "credit [the total|the payment|the price] of {order} to my card",
        "I was charged for {order}, give me a refund.",
        "I paid for {order} and would like a refund.",
        "get me the money of {order} back",
        "refund {order} to my card",
    ),
    test=(
        "return [the total|the money|the price] of {order} to me",
        "I need [my money|the money|the payment] back for {order}.",
        "give me [the total|the price] back for {order}",
        "I was charged for {order} and want a refund.",
        "I paid for {order}, [refund it|credit it to my card|give it back].",
        "a refund for {order} is what i want.",
    ),
    out_of_vocabulary=(
        "[recompense|remunerate] me for {order}",
        "I demand [restitution|my cash|my funds] for {order}.",
        "[reverse|undo] the [debit|billing] of {order}",
        "[settle|square] my expense with {order}",
        "[wire|hand] me [the sum|the cash] for {order}",
    ),
)

RETURN = Phrases(
    train=(
        "I want to [return|send back|give back] the {item} from {order}.",
        "[send|give] the {item} of {order} back",
        "the {item} in {order} is broken, take it back.",
        "return the {item}, {order}",
        "{order}: the {item} does not fit, i want to send it back.",
        "take back [my|the] {item} [from|of] {order}",
        "how do i return the {item} of {order}?",
        "the {item} from {order} [goes|comes] back.",
        "start the return of the {item} from {order}",
        "I [need|would like] to [return|send back] the {item} of {order}.",
        "the {item} of {order} [is broken|does not fit|does not work], return it.",
    ),
    validation=(
        "the {item} from {order} is broken, i want to [return it|send it back].",
        "I would like to send back [my|the] {item} from {order}.",
        "start the return of [my|the] {item}, {order}",
        "how do i [send|give] the {item} of {order} back?",
        "the {item} of {order} does not work, [take it back|send it back].",
        "I want to start the return of the {item} [from|of] {order}.",
    ),
    test=(
        "the {item} from {order} does not fit, [return it|take it back].",
        "I need to [give back|send back] the {item} from {order}.",
        "I want the {item} of {order} to [go|be sent] back.",
        "the {item} in {order} does not work, i would like to return it.",
        "start to send back the {item} [from|of] {order}",
        "how do i [give|send] back the {item} from {order}?",
        "return my {item} [from|of] {order}",
    ),
    out_of_vocabulary=(
        "[collect|retrieve] the {item} that came with {order}",
        "[arrange|organize] a pickup of the {item}, {order}",
        "the {item} of {order} is [rubbish|faulty|defective], have it collected.",
        "I am [dissatisfied|unhappy] with the {item} of {order}, recall it.",
        "[ship|post] the {item} of {order} to your warehouse",
        "[repatriate|surrender] the {item} of {order}",
    ),
)

INTENTS = {
    "track": TRACK,
    "details": DETAILS,
    "stock": STOCK,
    "human": HUMAN,
    "list": LIST,
    "complain": COMPLAIN,
    "cancel": CANCEL,
    "address": ADDRESS,
    "refund": REFUND,
    "return": RETURN,
}
