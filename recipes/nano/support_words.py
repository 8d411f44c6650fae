"""The support desk's tools, requests and policies in several wordings."""

# role: names; descriptions; arguments as name:type
TOOLS: dict[str, tuple[str, str, str]] = {
    "customer": (
        "get_customer get_customer find_customer lookup_customer customer_lookup",
        "Find a customer by email.|Get a customer's record.|Look up who a customer is.",
        "email:str",
    ),
    "verify": (
        "verify_identity verify_identity verify_customer check_identity",
        "Check a customer's postcode.|Verify who the customer is.|Confirm the customer's identity.",
        "customer_id:str postcode:str",
    ),
    "order": (
        "get_order get_order show_order read_order order_details",
        "Get an order.|Show an order's items and status.|Read the details of a purchase.",
        "order_id:str",
    ),
    "orders": (
        "list_orders list_orders find_orders customer_orders",
        "List a customer's orders.|Show all orders of a customer.|Find the purchases of someone.",
        "customer_id:str",
    ),
    "track": (
        "track_shipment track_shipment track_order where_is_parcel",
        "Track a shipment.|Say where a parcel is.|Get the delivery status of an order.",
        "order_id:str",
    ),
    "cancel": (
        "cancel_order cancel_order stop_order void_order",
        "Cancel an order.|Stop an order before it ships.|Call off a purchase.",
        "order_id:str reason:str=null",
    ),
    "return": (
        "return_item return_item start_return create_return",
        "Start the return of an item.|Take an item back.|Register that an item comes back.",
        "order_id:str item:str",
    ),
    "refund": (
        "refund_order refund_order issue_refund refund_payment",
        "Pay money back for an order.|Refund an order.|Give a customer money back.",
        "order_id:str amount:float",
    ),
    "exchange": (
        "exchange_item exchange_item swap_item replace_item",
        "Send another item instead.|Exchange an item for another.|Swap one item for a new one.",
        "order_id:str item:str new_item:str",
    ),
    "address": (
        "update_address update_address change_address set_address",
        "Change the delivery address of an order.|Send an order somewhere else.|Set a new address.",
        "order_id:str street:str city:str",
    ),
    "ticket": (
        "create_ticket create_ticket open_ticket new_case",
        "Open a ticket.|Record a complaint.|Create a case for the team.",
        "customer_id:str subject:str priority:low|medium|high",
    ),
    "escalate": (
        "escalate escalate transfer_to_human escalate_to_human",
        "Hand over to a human.|Transfer the customer to a manager.|Get a supervisor.",
        "reason:str",
    ),
    "coupon": (
        "apply_coupon apply_coupon use_voucher add_discount",
        "Apply a coupon to an order.|Use a voucher.|Take a discount code.",
        "order_id:str code:str",
    ),
    "stock": (
        "check_stock check_stock get_product find_product",
        "Say how many of a product are left.|Check whether an item is in stock.|Look up a product.",
        "product:str",
    ),
    "note": (
        "add_note add_note write_note leave_note",
        "Write a note on a customer.|Add a remark to the record.",
        "customer_id:str note:str",
    ),
}
ASKS: dict[str, str] = {
    "cancel": "cancel {o}|i want to cancel {o}|please call off {o}|i do not want {o} any more|stop {o}, please|{o} should not be sent|forget {o}, i changed my mind|i no longer need {o}|can you void {o}|withdraw {o}|kill {o}|i ordered {o} by mistake",
    "return": "i want to return the {i} from {o}|send the {i} of {o} back|the {i} in {o} is broken, take it back|i would like to give back the {i} from {o}|return {i}, {o}|{o}: the {i} does not fit, i want to send it back|take back my {i} ({o})|how do i return the {i} of {o}|the {i} from {o} goes back",
    "refund": "i want my money back for {o}|refund {o}|please pay back {o}|give me a refund for {o}|{o} never came, i want the money back|reimburse-me:{o}|credit {o} to my card|return the payment for {o}|i was charged for {o}, pay it back|money back for {o} please",
    "exchange": "swap the {i} in {o} for a {j}|exchange {i} for {j}, {o}|i want a {j} instead of the {i} from {o}|replace the {i} of {o} with a {j}|{o}: {j} rather than {i}, please|change my {i} to a {j} in {o}",
    "address": "send {o} to {s} in {c}|change the address of {o} to {s}, {c}|deliver {o} to {s}, {c} instead|i moved: {o} should go to {s} in {c}|the new address for {o} is {s}, {c}|update the address for {o}: {s}, {c}|ship {o} to {s}, {c}",
    "track": "where is {o}|track {o}|when will {o} arrive|has {o} been shipped|what is the status of the delivery of {o}|i am still waiting for {o}|how far is {o}|{o} is late, where is it|follow up on {o}|locate {o}",
    "order": "what is in {o}|show me {o}|what did i pay for {o}|tell me about {o}|what is the status of {o}|give me the details of {o}|how much was {o}|pull up {o}",
    "coupon": "use {k} on {o}|apply the coupon {k} to {o}|i have a voucher {k} for {o}|take {k} off {o}|{o}: code {k}, please|my discount code for {o} is {k}",
}
KEYED: dict[str, str] = {
    "ticket": "i want to complain about {t}|please open a ticket: {t}|record a complaint, {t}|make a case about {t}|there is a problem: {t}|report {t}",
    "note": "please note: {t}|write down that {t}|add a note that says {t}|leave a remark: {t}",
    "orders": "what have i ordered|list my orders|show me all my purchases|which orders do i have|what did i buy so far|give me my order history",
}
ITEMS = """lamp chair table shirt jacket book phone laptop mouse keyboard monitor bag shoes hat mug plate
bottle watch camera clock sofa desk cable charger headset speaker blender kettle toaster tent bike helmet
scarf belt wallet ring mirror pillow blanket towel""".split()
STATES = ("pending", "processing", "shipped", "delivered", "cancelled", "returned")
POLICIES = """Verify the customer before you change anything.|Only pending orders can be cancelled.|
Refund only delivered orders.|Look at the order before you change it.|Refunds over 200 go to a human.|
Returns need a delivered order.|Never give details to strangers.|Ask for the order number if it is missing.""".replace(
    "\n", ""
).split("|")
THANKS = "thanks|thank you|great, thanks|that was all|ok, bye|perfect, thank you|no, that is all".split(
    "|"
)
